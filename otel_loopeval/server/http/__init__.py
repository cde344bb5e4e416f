"""HTTP/1.1, spoken here: the protocol costs more than the rest where requests are small."""
