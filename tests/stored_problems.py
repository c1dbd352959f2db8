"""Problems as a worker that observes chains stores them."""

from datetime import timedelta

from django.utils import timezone

from proving.models import ChainWatch, Problem


def saw(
    *problems: tuple[str, str] | tuple[str, str, dict[str, str]], chain_id: int = 31337, ago: timedelta = timedelta()
) -> None:
    """Store a worker's observation of the chain. Each problem has its code, its sentence and maybe its values."""
    at = timezone.now() - ago
    ChainWatch.objects.update_or_create(chain_id=chain_id, defaults={"looked_at": at})
    Problem.objects.filter(chain_id=chain_id).delete()
    for place, (code, sentence, *values) in enumerate(problems):
        of_chain = {"seen_by": "watch", "chain_id": chain_id, "values": values[0] if values else {}}
        times = {"began_at": at, "seen_at": at}
        Problem.objects.create(key=f"{code} {place}", code=code, sentence=sentence, shown=sentence, **of_chain, **times)


def stored(chain_id: int = 31337) -> list[Problem]:
    """Return what workers see now of the chain."""
    return list(Problem.seen_lately().filter(chain_id=chain_id).order_by("code", "key"))
