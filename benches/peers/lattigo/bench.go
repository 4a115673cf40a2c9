package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/bootstrapping"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
)

// Times in milliseconds, the best of some runs. Operations run on one thread each.
type Times struct {
	By       string `json:"by"`
	LogN     int    `json:"log_degree"`
	Primes   int    `json:"primes"`
	Rotation []Time `json:"rotation"`
	Product  []Time `json:"multiply_relinearise_rescale"`
	// Set N16QP1546H192H32, all slots; left out unless asked for.
	Bootstrap *float64 `json:"bootstrap_ms,omitempty"`
	CPUs      int      `json:"cpus"`
}

// Time of an operation with keys of some special primes.
type Time struct {
	Alpha int     `json:"alpha"`
	Ms    float64 `json:"ms"`
}

const primes, runs = 15, 7

func best(runs int, op func() error) (float64, error) {
	least := 0.0
	for i := 0; i < runs; i++ {
		start := time.Now()
		if err := op(); err != nil {
			return 0, err
		}
		if ms := float64(time.Since(start).Microseconds()) / 1000; i == 0 || ms < least {
			least = ms
		}
	}
	return least, nil
}

func bench(bootstrap bool) (*Times, error) {
	times := &Times{By: "lattigo v6.2.0", LogN: 16, Primes: primes, CPUs: runtime.GOMAXPROCS(0)}
	for _, alpha := range []int{1, 2, 3, 4, 5, 8} {
		if err := times.add(alpha); err != nil {
			return nil, err
		}
	}
	if !bootstrap {
		return times, nil
	}
	ms, err := bootstrapped()
	times.Bootstrap = &ms
	return times, err
}

func (times *Times) add(alpha int) error {
	logQ := []int{50}
	for len(logQ) < primes {
		logQ = append(logQ, 40)
	}
	logP := []int{}
	for len(logP) < alpha {
		logP = append(logP, 50)
	}
	params, err := ckks.NewParametersFromLiteral(ckks.ParametersLiteral{
		LogN: times.LogN, LogQ: logQ, LogP: logP, LogDefaultScale: 40, Xs: ring.Ternary{P: 2.0 / 3},
	})
	if err != nil {
		return err
	}
	generator := rlwe.NewKeyGenerator(params)
	sk := generator.GenSecretKeyNew()
	keys := rlwe.NewMemEvaluationKeySet(
		generator.GenRelinearizationKeyNew(sk), generator.GenGaloisKeysNew([]uint64{params.GaloisElement(1)}, sk)...)
	evaluator := ckks.NewEvaluator(params, keys)
	values := make([]complex128, params.MaxSlots())
	pt := ckks.NewPlaintext(params, params.MaxLevel())
	if err := ckks.NewEncoder(params).Encode(values, pt); err != nil {
		return err
	}
	x, err := rlwe.NewEncryptor(params, sk).EncryptNew(pt)
	if err != nil {
		return err
	}
	out := ckks.NewCiphertext(params, 1, params.MaxLevel())
	rotation, err := best(runs, func() error { return evaluator.Rotate(x, 1, out) })
	if err != nil {
		return err
	}
	product, err := best(runs, func() error {
		product, err := evaluator.MulRelinNew(x, x)
		if err != nil {
			return err
		}
		return evaluator.Rescale(product, product)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "alpha %d: rotation %.1f ms, product %.1f ms\n", alpha, rotation, product)
	times.Rotation = append(times.Rotation, Time{alpha, rotation})
	times.Product = append(times.Product, Time{alpha, product})
	return nil
}

func bootstrapped() (float64, error) {
	set := bootstrapping.N16QP1546H192H32
	params, err := ckks.NewParametersFromLiteral(set.SchemeParams)
	if err != nil {
		return 0, err
	}
	boot, err := bootstrapping.NewParametersFromLiteral(params, set.BootstrappingParams)
	if err != nil {
		return 0, err
	}
	sk := rlwe.NewKeyGenerator(params).GenSecretKeyNew()
	keys, _, err := boot.GenEvaluationKeys(sk)
	if err != nil {
		return 0, err
	}
	evaluator, err := bootstrapping.NewEvaluator(boot, keys)
	if err != nil {
		return 0, err
	}
	pt := ckks.NewPlaintext(params, 0)
	if err := ckks.NewEncoder(params).Encode(make([]complex128, params.MaxSlots()), pt); err != nil {
		return 0, err
	}
	x, err := rlwe.NewEncryptor(params, sk).EncryptNew(pt)
	if err != nil {
		return 0, err
	}
	return best(2, func() error {
		_, err := evaluator.Bootstrap(x.CopyNew())
		return err
	})
}
