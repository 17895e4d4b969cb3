# /// script
# dependencies = ["pydantic==2.14.4", "tzdata==2026.6"]
# ///
# Validates, serialises and describes models.
import datetime
from decimal import Decimal
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, computed_field


class Sheep(BaseModel):
    name: Annotated[str, Field(min_length=2)]
    born: datetime.datetime
    weight: Decimal
    kind: Literal["merino", "texel"] = "merino"

    @computed_field
    @property
    def label(self) -> str:
        return f"{self.name} ({self.kind})"


def work() -> None:
    sheep = Sheep.model_validate_json(
        '{"name": "Dölly", "born": "1996-07-05T12:00:00+01:00", "weight": "45.50"}'
    )
    assert sheep.label == "Dölly (merino)" and sheep.weight == Decimal("45.50")
    there = sheep.born.astimezone(ZoneInfo("Australia/Sydney"))
    assert there.isoformat() == "1996-07-05T21:00:00+10:00", there
    again = Sheep.model_validate(sheep.model_dump(exclude={"label"}))
    assert again == sheep and '"weight":"45.50"' in sheep.model_dump_json()
    try:
        Sheep.model_validate({"name": "D", "born": "never", "weight": 1, "kind": "goat"})
    except ValidationError as error:
        assert sorted(e["loc"][0] for e in error.errors()) == ["born", "kind", "name"]
    else:
        raise AssertionError("it is wrong three times")
    assert TypeAdapter(list[int]).validate_python(["1", 2]) == [1, 2]
    assert Sheep.model_json_schema()["properties"]["kind"]["enum"] == ["merino", "texel"]
