"""Plug-ins of Python as an operator writes them; nodes of the tests import them by their names."""

from collections.abc import Iterable, Mapping

from ottla.plugins import AlteredConfigs, AssignmentFailed, Group, NewTopic, PolicyViolation


class TopicRules:
    """Does what the names of topics ask for."""

    def configure(self, settings: Mapping[str, str]) -> None:
        self.greeting = settings["rules.greeting"]

    def validate(self, request: NewTopic) -> None:
        if request.name.startswith("refused"):
            raise PolicyViolation(f"{self.greeting}: {request}")
        if request.name.startswith("broken"):
            raise ValueError("the rules are broken")

    def close(self) -> None:
        print("TopicRules closed", flush=True)


class ConfigRules:
    """Keeps settings from being taken away."""

    def validate(self, request: AlteredConfigs) -> None:
        if None in request.configs.values():
            raise PolicyViolation(f"{request} takes something away")


class FirstTakesAll:
    """Gives each topic to the first of its readers, by their ids."""

    name = "first-takes-all"

    def assign(self, group: Group) -> Mapping[str, Mapping[str, Iterable[int]]]:
        if any(member.instance_id == "objects" for member in group.members.values()):
            raise AssignmentFailed("a member objects")
        if any(member.instance_id == "confuses" for member in group.members.values()):
            return {"m": {"nowhere": [0]}}
        made: dict[str, dict[str, Iterable[int]]] = {}
        for name, topic in group.topics.items():
            first = min(member_id for member_id, member in group.members.items() if name in member.topics)
            made.setdefault(first, {})[name] = range(topic.partitions)
        return made


class Uniform(FirstTakesAll):
    """Has the name of another."""

    name = "uniform"


class Broken:
    """Cannot be made."""

    def __init__(self) -> None:
        raise ValueError("not today")

    def validate(self, request: NewTopic) -> None:
        """Never asked."""


class Nameless:
    """An assignor that nobody can ask for."""

    def assign(self, group: Group) -> Mapping[str, Mapping[str, Iterable[int]]]:
        return {}
