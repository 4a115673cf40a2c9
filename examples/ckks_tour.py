# %% [markdown]
# # Encrypted vectors, from parameters to bootstrapping
# Cells of this file run in any editor that knows `# %%`, and as a whole: `python examples/ckks_tour.py` (3 GB of memory, a
# minute; `pip install .` first). `crates/base/he/examples/ckks_tour.rs` is the same walk in Rust.

# %% Parameters: every modulus is checked against the most that 128 bits of security allow.
import numpy as np

from tacit import ckks

context = ckks.Context("B")
for check in context.security:
    print(f"{check.what}: {check.modulus_bits:.1f} bits of at most {check.most_bits}")

# %% The circuit comes first, since it says which keys it needs: the mean of each slot and its right neighbour, a polynomial, a bootstrap.
boot = ckks.Bootstrapper(context, message_ratio_bits=10, chained=True)
halves = np.full(context.slots, 0.5)
mean = ckks.Transform(context, {0: halves, 1: halves}, level=boot.level_out)
cube = ckks.Polynomial([0, 0.5, 0, 0.5])
print(f"bootstrap: levels {boot.level_in} to {boot.level_out}, {len(boot.keys)} keys, fails with 2^{boot.failure_log2:.0f}")

# %% The client's keys. A server gets `keys`, never `secret`.
secret = context.secret()
keys = secret.keys(boot.keys, mean.keys, context.relinearisation_keys(boot.level_out))
print(f"{len(keys.ids)} keys, {keys.memory_bytes / 1e6:.0f} MB")

# %% Encrypt, and send: half of a fresh ciphertext is a seed.
x = np.sin(0.37 * np.arange(context.slots))
sent = secret.encrypt_to_bytes(x, level=boot.level_out)
print(f"ciphertext: {len(sent):,} bytes for {context.slots:,} numbers")
received = context.read(sent, magnitude=0.7)


# %% What the server does. The secret is here only to show how far off each result is.
def show(what, ciphertext, want):
    error = np.abs(secret.decrypt(ciphertext).real - want).max()
    print(f"{what}: level {ciphertext.level}, off by 2^{np.log2(error):.1f} at worst")


means = keys.transform(received, mean)
want = (x + np.roll(x, -1)) / 2
show("means", means, want)

cubes = keys.polynomial(means, cube)
want = cube(want)
show("polynomial", cubes, want)

# %% Out of levels: a bootstrap gives them back.
fresh = keys.bootstrap(cubes, boot)
show("bootstrap", fresh, want)

again = keys.polynomial(fresh, cube)
show("and on", again, cube(want))
