"""Registry of problems: one module per problem, and the problems that packages add."""

from __future__ import annotations

from typing import Any, Final

from privnets.registry import Registry

# Of `privnets.adversarial.problem.Problem`, whose configurations are made with this registry.
PROBLEMS: Final[Registry[Any]] = Registry(
    "problem",
    "privnets.problems",
    "privnets.adversarial.problem:Problem",
    {
        "gaussian-mixture": "privnets.adversarial.problems.gaussian_mixture:GaussianMixtureProblem",
        "digits": "privnets.adversarial.problems.digits:DigitsProblem",
        "amnist": "privnets.adversarial.problems.amnist:AmnistProblem",
        "eco": "privnets.adversarial.problems.eco:EcoProblem",
        "gender-emotion": "privnets.adversarial.problems.face_problems:GenderEmotionProblem",
        "subject-gender": "privnets.adversarial.problems.face_problems:SubjectGenderProblem",
        "subject-within-subject": (
            "privnets.adversarial.problems.face_problems:SubjectWithinSubjectProblem"
        ),
    },
)
