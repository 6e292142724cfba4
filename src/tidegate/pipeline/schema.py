"""The JSON schema of pipeline files: editors complete and check by it."""

import json

from tidegate.pipeline.model import Pipeline


def schema_text() -> str:
    """The schema as it is kept in the repository: `python -m tidegate.pipeline.schema > FILE`."""
    schema = Pipeline.model_json_schema(by_alias=True)
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema, indent=2)


if __name__ == "__main__":
    print(schema_text())
