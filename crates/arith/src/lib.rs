//! Arithmetic kernels: modular and ring arithmetic, NTT, polynomials, samplers, AES-based PRG and hash, bit
//! matrices. The only crate with `unsafe` code (SIMD kernels with a portable twin each).

// Owner: OT work (block, aes, prg, bits).
// Owner: lattice work (modulus, ntt, poly, sample, ring).
