"""The Grafana dashboards as code: what they show, and the JSON that Grafana reads."""
