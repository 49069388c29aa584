"""From the config's task to a `Task`."""

from pods.config import TaskConfig
from pods.records import Task
from pods.tasks import chainsum


def load(config: TaskConfig) -> Task:
    """Load the task that the config names.

    Raises:
        ValueError: its data cannot be found or is malformed.
    """
    if config.name == "chainsum":
        assert config.train_size is not None and config.test_size is not None
        return chainsum.load(config.train_size, config.test_size, config.few_shot)
    from pods.tasks import gsm8k  # `datasets` takes a second to import

    return gsm8k.load(config)
