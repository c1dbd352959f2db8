"""The API's own description of itself."""

import importlib
import json
from typing import Any

api: Any = importlib.import_module("config.urls").api
DOCUMENT: Any = json.loads(json.dumps(api.get_openapi_schema(), default=str))
OPERATIONS = [(path, method, each) for path, item in DOCUMENT["paths"].items() for method, each in item.items()]
