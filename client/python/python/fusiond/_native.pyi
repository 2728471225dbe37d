"""The Rust client of fusiond, as Python holds it."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Literal, final

from typing_extensions import Self

VERSION: Final[str]
"""Version of this client."""
PROTOCOL: Final[int]
"""Protocol that this client speaks with the daemon."""
DECODE_ROWS: Final[int]
"""Calls of at most so many rows, as in decoding, are never split."""

@final
class Layer:
    """One linear map: its inputs, outputs, weight format ("f32", "f16", "bf16", "q4/64") and layout ("nk" or "kn").

    Raises ValueError for one that can't be.
    """

    def __init__(self, inputs: int, outputs: int, format: str, layout: str = "nk") -> None: ...
    @property
    def inputs(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def format(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def relative_error_bound(self) -> float:
        """The largest relative difference between a split product and the unsplit one that is rounding."""

    def working_set_bytes(self, rows: int) -> int:
        """Bytes that measuring ``rows`` rows takes: input, weights, and three results."""

    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Lines:
    """The fitted time of each unit for one layer, in ms."""

    @property
    def primary_ms_per_row(self) -> float: ...
    @property
    def secondary_ms_per_row(self) -> float: ...
    @property
    def overhead_ms(self) -> float: ...
    @property
    def stock_ms_per_row(self) -> float: ...

@final
class Attachment:
    """A live copy of the daemon's knowledge, refreshed by a thread of its own. Made by ``fusiond.attach``.

    Layers are named by their place in the list that was attached. A forked child attaches anew at its first question.
    """

    def __init__(
        self,
        name: str,
        layers: list[Layer],
        *,
        socket: str | None = None,
        state_directory: str | None = None,
        engine: tuple[str, str, str] | None = None,
        worker: tuple[str, Mapping[str, str]] | None = None,
        typical_rows: int = 0,
        working_set_bytes: int | None = None,
        limit_seconds: float = 0.25,
    ) -> None: ...
    @property
    def basis(self) -> Literal["attached", "snapshot", "stock"]:
        """What the answers rest on: the daemon, what it left behind, or nothing."""

    @property
    def conditions(self) -> str | None:
        """The conditions as the daemon saw them last, in words."""

    def touch(self) -> None:
        """Says that something short runs, such as a decode step: the process counts as busy until nothing has run for a quarter of a second, or up to twice that."""

    def secondary_rows(self, place: int, rows: int) -> int:
        """The secondary unit's rows for ``rows`` rows of the layer at ``place``; 0 is stock. Takes no lock."""

    def secondary_rows_through(self, places: Sequence[int], rows: int) -> int:
        """The same for rows that go through all layers at ``places`` before they are joined, a feed-forward part say."""

    def lines(self, place: int) -> Lines | None:
        """The lines that the layer at ``place`` is believed to follow; None if nothing is known."""

    def region(self, name: str, parts: list[tuple[int, int]], other_ms: float = 0.0) -> Region:
        """One workload that is executed as a whole, split or eager.

        ``parts`` are layers by place, and how often each is run in a call; ``other_ms`` is work that is never split.
        Not for every call: this waits.
        """

    def observe(
        self,
        place: int,
        rows: int,
        secondary_rows: int,
        total_ms: float,
        finish_ms: tuple[float, float],
        secondary_waited_first: bool,
    ) -> bool:
        """Reports a split call whose units were waited for one after the other; whether it was taken. Never waits.

        ``finish_ms`` are the primary and the secondary unit's.
        """

@final
class Region:
    """One workload, whatever its rows: a prefill chunk of one model, say. Made by ``Attachment.region``."""

    @property
    def name(self) -> str: ...
    def begin(self, rows: int) -> Call:
        """Decides how a call of ``rows`` rows is executed, and times it until it ends. Never waits."""

    def arm(self, rows: int) -> Literal["split", "eager"]:
        """The arm that a call of ``rows`` rows would get now, without making one: for showing."""

    def explain(self, rows: int) -> str | None:
        """Why calls of ``rows`` rows are executed as they are; None before the first."""

@final
class Call:
    """A call in the air. It ends once: by ``end``, by ``abandon``, or with the block that it is the context of.

    A block that raises abandons it.
    """

    @property
    def arm(self) -> Literal["split", "eager"]:
        """How to execute this call."""

    @property
    def explores(self) -> bool:
        """Whether this call is made to learn."""

    def end(self) -> None:
        """The result is there: the time counts. Call it between materialised boundaries only."""

    def abandon(self) -> None:
        """The call was not made, or not as decided: nothing counts."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        error: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
