"""Reading what a judge wrote, in any of the forms that models use."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_loopeval.evaluation import JudgeResult
from otel_loopeval.evaluation.verdicts import GoalVerdict, read_goal, read_score

FULL = JudgeResult(8.0, "Clear.", ["Add an example.", "Cite sources."])


@pytest.mark.parametrize(
    "answer",
    [
        '{"score": 8, "reasoning": "Clear.", "suggestions": ["Add an example.", "Cite sources."]}',
        '{"reasoning": "Clear.", "suggestions": ["Add an example.", "Cite sources."], "score": "8/10"}',
        (
            'Sure:\n```json\n{"score": 8.0, "reasoning": " Clear. ",\n'
            ' "suggestions": ["Add an example.", "", "Cite sources."]}\n```\nHope it helps {really}!'
        ),
        (
            'Let me think about {this}. {"note": 1} '
            '{"score": 8, "reasoning": "Clear.", "suggestions": ["Add an example.", "Cite sources."]}'
        ),
        "SCORE: 8\nREASONING: Clear.\nSUGGESTIONS:\n- Add an example.\n- Cite sources.",
        "**Score:** 8/10\n**Reasoning:** Clear.\n**Suggestions:**\n* Add an example.\n\n* Cite sources.\n",
        "## SCORE: [8]\n## REASONING:\nClear.\n## SUGGESTIONS:\n1. Add an example.\n2) Cite sources.",
        "> score: 8 out of 10\n> reasoning: Clear.\nSuggestions: - Add an example.\n• Cite sources.",
    ],
)
def test_a_verdict_is_read_in_any_form(answer: str):
    assert read_score(answer) == FULL


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ('{"score": 8.5}', 8.5),
        ('{"score": "8,5"}', 8.5),
        ('{"score": 10}', 10.0),
        ('{"score": 1}', 1.0),
        ('{"score": 0}', 1.0),
        ('{"score": 0.9}', 1.0),
        ("SCORE: 7.5/10", 7.5),
        ("SCORE: 3 (weak)", 3.0),
        ("SCORE: 3\nSCORE: 9", 3.0),
        ('{"score": 99} {"score": 6}', 6.0),
    ],
)
def test_a_score_is_on_the_scale_from_one_to_ten(answer: str, score: float):
    verdict = read_score(answer)

    assert verdict is not None
    assert verdict.score == score


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "The output is good.",
        "I would give it an 8.",
        '{"score": 85}',
        '{"score": "8/100"}',
        '{"score": -1}',
        '{"score": NaN}',
        '{"score": Infinity}',
        '{"score": true}',
        '{"score": null, "reasoning": "no"}',
        '{"score": [8]}',
        '{"score": {"value": 8}}',
        '{"score": 8',
        "[8]",
        "SCORE: excellent",
        "SCORE: 85",
        "SCORE: 8/100",
        "SCORE:",
        "REASONING: Clear.",
    ],
)
def test_no_score_is_made_up(answer: str):
    assert read_score(answer) is None


@pytest.mark.parametrize(
    "nothing", ["SUGGESTIONS: None", "SUGGESTIONS:\nnone.", "SUGGESTIONS:\n", "", "SUGGESTIONS: N/A"]
)
def test_no_suggestions(nothing: str):
    assert read_score(f"SCORE: 9\nREASONING: Clear.\n{nothing}") == JudgeResult(9.0, "Clear.", [])


def test_suggestions_that_are_one_string():
    assert read_score('{"score": 9, "suggestions": "Cite."}') == JudgeResult(9.0, "", ["Cite."])
    assert read_score('{"score": 9, "suggestions": null}') == JudgeResult(9.0, "", [])


def test_reasoning_over_several_lines_is_joined():
    assert read_score("SCORE: 9\nREASONING: One.\nTwo.\n\nThree.") == JudgeResult(9.0, "One. Two. Three.", [])


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ('{"verdict": "done", "reason": "URL shown."}', GoalVerdict(True, "URL shown.")),
        ('{"verdict": "CONTINUE ", "reason": "No URL."}', GoalVerdict(False, "No URL.")),
        ('I say: {"verdict": "done"} and {"verdict": "continue"}', GoalVerdict(True, "")),
        ('{"x": 1} {"verdict": "maybe"} {"verdict": "continue", "reason": null}', GoalVerdict(False, "")),
        ('{"done": true, "reason": "Yes."}', GoalVerdict(True, "Yes.")),
        ('{"done": false}', GoalVerdict(False, "")),
        ('{"verdict": "maybe"}', None),
        ('{"done": "yes"}', None),
        ("done", None),
        ("", None),
        ('{"verdict": "done"', None),
    ],
)
def test_a_goal_verdict(answer: str, verdict: GoalVerdict | None):
    assert read_goal(answer) == verdict


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read_without_an_error(text: str):
    verdict = read_score(text)
    read_goal(text)

    assert verdict is None or 1 <= verdict.score <= 10


@settings(deadline=None)
@given(st.text(alphabet='{}[]":, scoreverdictdone0189.\n-*'))
def test_text_that_looks_like_a_verdict_is_read_without_an_error(text: str):
    verdict = read_score(text)
    read_goal(text)

    assert verdict is None or 1 <= verdict.score <= 10


@settings(deadline=None)
@given(
    st.floats(min_value=1, max_value=10),
    st.text(),
    st.lists(st.sampled_from(["Add an example.", "Use {braces}", 'Say "why"'])),
    st.sampled_from(["{}", "Here you go: {}", "```json\n{}\n```", "{{not json}} {}", "{}\n{{"]),
)
def test_json_is_found_in_any_company(score: float, reasoning: str, suggestions: list[str], around: str):
    verdict = {"score": score, "reasoning": reasoning, "suggestions": suggestions}
    # As str.format would, but leaving the braces of the JSON alone.
    answer = (
        around.replace("{{", "\0").replace("{}", json.dumps(verdict)).replace("\0", "{").replace("}}", "}")
    )

    assert read_score(answer) == JudgeResult(score, reasoning.strip(), suggestions)


def test_deep_nesting_is_no_error():
    assert read_score('{"a":' * 100_000) is None
    assert read_score('{"a":' * 10 + "1" + "}" * 10 + '{"score": 4}') == JudgeResult(4.0)
