//! Arithmetic kernels: modular and ring arithmetic, NTT, polynomials, samplers, AES-based PRG and
//! hash, bit matrices; also a counting allocator and buffers in large pages. The only crate with
//! `unsafe` code. Every SIMD kernel has a portable twin.

pub mod aes;
pub mod bits;
pub mod block;
pub mod block_code;
pub mod block_select;
pub mod cpu;
pub mod heap;
mod lanes;
mod lattice_error;
pub mod modulus;
pub mod ntt;
pub mod pack;
pub mod pages;
pub mod pointwise;
pub mod prg;
mod products;
pub mod ring;
pub mod rns;
pub mod sample;
#[cfg(target_arch = "x86_64")]
mod words52;

pub use lattice_error::LatticeError;
