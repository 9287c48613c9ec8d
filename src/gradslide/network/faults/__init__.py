"""Faults of real networks, simulated.

They are wrappers around a network, or around each other, and work with every method.

Links: `Lossy`, `Bursty`, `Sleeping`, `Varying`, `Stragglers` say which messages arrive. An agent
that misses a message uses its own value in its place, so that the sums of the rows of the weights
stay: (W v)_i becomes rowsum_i v_i + sum_{j heard} w_ij (v_j - v_i). Where both directions of a link
fail together, symmetric weights stay symmetric: Lap v still sums to zero, a mixing matrix still
keeps the mean. Where one fails alone, neither holds. A method that sends increments (`ChocoSGD`)
never makes up for those that are lost.

Messages: `Noisy` and `Compressed` say what arrives. Links go outside and messages inside, as in
`Lossy(Noisy(graph, 0.1), 0.1)`; the other order means the same, and what is lost has no noise in
either.

Time is counted in exchanges. What is random in an exchange depends on the seed, the kind of fault
and the number of the exchange alone; two faults of one kind around each other draw different
numbers. A run starts at exchange 0. Floats are counted as if all messages were sent, whether they
arrive or not. Control messages (`agree`, `norm_bound`, `survey`, and piggybacked reductions) are
taken to be repeated until they arrive: they pass, and are counted once.
"""

from typing import TYPE_CHECKING

from gradslide._support.lazy import lazy_names

if TYPE_CHECKING:
    from gradslide.network.faults.bursty import Bursty as Bursty
    from gradslide.network.faults.compressed import Compressed as Compressed
    from gradslide.network.faults.lossy import Lossy as Lossy
    from gradslide.network.faults.noisy import Noisy as Noisy
    from gradslide.network.faults.sleeping import Sleeping as Sleeping
    from gradslide.network.faults.stragglers import Stragglers as Stragglers
    from gradslide.network.faults.varying import Varying as Varying
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "bursty": "Bursty",
            "compressed": "Compressed",
            "lossy": "Lossy",
            "noisy": "Noisy",
            "sleeping": "Sleeping",
            "stragglers": "Stragglers",
            "varying": "Varying",
        },
    )
