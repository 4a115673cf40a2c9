package main

import (
	"encoding/json"
	"fmt"
	"math/cmplx"
	"os"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
)

// Vectors of one side: everything by coefficients, so that no order of a transform matters.
type Vectors struct {
	// Which program made them.
	By        string   `json:"by"`
	LogDegree int      `json:"log_degree"`
	Primes    []uint64 `json:"primes"`
	Special   []uint64 `json:"special"`
	// Coefficients -1, 0, 1.
	Secret []int64 `json:"secret"`
	// Two messages, a complex number for each slot.
	X [][2]float64 `json:"x"`
	Y [][2]float64 `json:"y"`
	// How far the rotation goes.
	Steps   int                   `json:"steps"`
	Results map[string]Ciphertext `json:"results"`
}

// Ciphertext (c0, c1) with c0 + c1 s = m: residues [primes][coefficients].
type Ciphertext struct {
	Scale float64    `json:"scale"`
	C0    [][]uint64 `json:"c0"`
	C1    [][]uint64 `json:"c1"`
}

const tolerance = 1.0 / (1 << 30)

// What each result holds, slot by slot.
func expected(v *Vectors) map[string][]complex128 {
	n := len(v.X)
	at := func(z [][2]float64, i int) complex128 { return complex(z[i%n][0], z[i%n][1]) }
	make := func(f func(i int) complex128) []complex128 {
		slots := []complex128{}
		for i := 0; i < n; i++ {
			slots = append(slots, f(i))
		}
		return slots
	}
	return map[string][]complex128{
		"encryption":  make(func(i int) complex128 { return at(v.X, i) }),
		"sum":         make(func(i int) complex128 { return at(v.X, i) + at(v.Y, i) }),
		"product":     make(func(i int) complex128 { return at(v.X, i) * at(v.Y, i) }),
		"rotation":    make(func(i int) complex128 { return at(v.X, i+v.Steps) }),
		"conjugation": make(func(i int) complex128 { return cmplx.Conj(at(v.X, i)) }),
	}
}

func parameters(v *Vectors) (ckks.Parameters, error) {
	return ckks.NewParametersFromLiteral(ckks.ParametersLiteral{
		LogN: v.LogDegree, Q: v.Primes, P: v.Special, LogDefaultScale: 40, Xs: ring.Ternary{P: 2.0 / 3},
	})
}

// Reads what tacit made, decrypts all of it with Lattigo, and makes the same with Lattigo.
func vectors(path string) (*Vectors, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var ours Vectors
	if err := json.Unmarshal(text, &ours); err != nil {
		return nil, err
	}
	params, err := parameters(&ours)
	if err != nil {
		return nil, err
	}
	if err := check(params, &ours); err != nil {
		return nil, err
	}
	return theirs(params, &ours)
}

func check(params ckks.Parameters, v *Vectors) error {
	decryptor := rlwe.NewDecryptor(params, secret(params, v.Secret))
	encoder := ckks.NewEncoder(params)
	for name, want := range expected(v) {
		result, found := v.Results[name]
		if !found {
			return fmt.Errorf("there is no %s", name)
		}
		got := make([]complex128, len(want))
		if err := encoder.Decode(decryptor.DecryptNew(read(params, result)), got); err != nil {
			return err
		}
		worst := 0.0
		for i := range want {
			worst = max(worst, cmplx.Abs(got[i]-want[i]))
		}
		fmt.Fprintf(os.Stderr, "%s by %s: off by %.2g at worst\n", name, v.By, worst)
		if worst > tolerance {
			return fmt.Errorf("%s by %s is off by %g", name, v.By, worst)
		}
	}
	return nil
}

func secret(params ckks.Parameters, coefficients []int64) *rlwe.SecretKey {
	sk := rlwe.NewSecretKey(params)
	set := func(r *ring.Ring, p ring.Poly) {
		for k, s := range r.SubRings[:p.Level()+1] {
			for i, c := range coefficients {
				p.Coeffs[k][i] = (s.Modulus + uint64(c)) % s.Modulus
				if c < 0 {
					p.Coeffs[k][i] = s.Modulus - 1
				}
			}
		}
		r.NTT(p, p)
		r.MForm(p, p)
	}
	set(params.RingQ(), sk.Value.Q)
	set(params.RingP(), sk.Value.P)
	return sk
}

func read(params ckks.Parameters, c Ciphertext) *rlwe.Ciphertext {
	level := len(c.C0) - 1
	ct := ckks.NewCiphertext(params, 1, level)
	for k := range c.C0 {
		copy(ct.Value[0].Coeffs[k], c.C0[k])
		copy(ct.Value[1].Coeffs[k], c.C1[k])
	}
	r := params.RingQ().AtLevel(level)
	r.NTT(ct.Value[0], ct.Value[0])
	r.NTT(ct.Value[1], ct.Value[1])
	ct.Scale = rlwe.NewScale(c.Scale)
	return ct
}

func write(params ckks.Parameters, ct *rlwe.Ciphertext) Ciphertext {
	r := params.RingQ().AtLevel(ct.Level())
	half := func(p ring.Poly) [][]uint64 {
		out := *p.CopyNew()
		r.INTT(out, out)
		return out.Coeffs
	}
	return Ciphertext{Scale: ct.Scale.Float64(), C0: half(ct.Value[0]), C1: half(ct.Value[1])}
}

func theirs(params ckks.Parameters, ours *Vectors) (*Vectors, error) {
	v := &Vectors{
		By: "lattigo v6.2.0", LogDegree: ours.LogDegree, Primes: ours.Primes, Special: ours.Special,
		X: ours.X, Y: ours.Y, Steps: ours.Steps, Results: map[string]Ciphertext{},
	}
	generator := rlwe.NewKeyGenerator(params)
	sk := generator.GenSecretKeyNew()
	s := *sk.Value.Q.CopyNew()
	params.RingQ().IMForm(s, s)
	params.RingQ().INTT(s, s)
	for _, c := range s.Coeffs[0] {
		if c > 1 {
			v.Secret = append(v.Secret, -1)
		} else {
			v.Secret = append(v.Secret, int64(c))
		}
	}
	elements := []uint64{params.GaloisElement(v.Steps), params.GaloisElementForComplexConjugation()}
	keys := rlwe.NewMemEvaluationKeySet(generator.GenRelinearizationKeyNew(sk), generator.GenGaloisKeysNew(elements, sk)...)
	evaluator := ckks.NewEvaluator(params, keys)
	encoder, encryptor := ckks.NewEncoder(params), rlwe.NewEncryptor(params, sk)
	encrypt := func(values [][2]float64) (*rlwe.Ciphertext, error) {
		slots := []complex128{}
		for _, z := range values {
			slots = append(slots, complex(z[0], z[1]))
		}
		pt := ckks.NewPlaintext(params, params.MaxLevel())
		if err := encoder.Encode(slots, pt); err != nil {
			return nil, err
		}
		return encryptor.EncryptNew(pt)
	}
	x, err := encrypt(v.X)
	if err != nil {
		return nil, err
	}
	y, err := encrypt(v.Y)
	if err != nil {
		return nil, err
	}
	product, err := evaluator.MulRelinNew(x, y)
	if err == nil {
		err = evaluator.Rescale(product, product)
	}
	if err != nil {
		return nil, err
	}
	v.Results["encryption"], v.Results["product"] = write(params, x), write(params, product)
	for name, op := range map[string]func() (*rlwe.Ciphertext, error){
		"sum":         func() (*rlwe.Ciphertext, error) { return evaluator.AddNew(x, y) },
		"rotation":    func() (*rlwe.Ciphertext, error) { return evaluator.RotateNew(x, v.Steps) },
		"conjugation": func() (*rlwe.Ciphertext, error) { return evaluator.ConjugateNew(x) },
	} {
		ct, err := op()
		if err != nil {
			return nil, err
		}
		v.Results[name] = write(params, ct)
	}
	return v, check(params, v)
}
