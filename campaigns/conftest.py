pytest_plugins = ["tests.conftest"]
