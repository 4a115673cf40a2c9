// Lattigo beside our RNS-CKKS: vectors that both sides decrypt, and times of the same operations.
//
//	go run . vectors OURS.json > LATTIGO.json   makes Lattigo's vectors with the primes of ours, after it has decrypted ours
//	go run . bench [-threads 1]                 rotation, multiplication and bootstrapping at N = 2^16, as JSON
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("`vectors OURS.json` or `bench` is wanted")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	bootstrap := flags.Bool("bootstrap", false, "bootstrap too (16 GB of memory, minutes)")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	var result any
	var err error
	switch {
	case args[0] == "vectors" && flags.NArg() == 1:
		result, err = vectors(flags.Arg(0))
	case args[0] == "bench" && flags.NArg() == 0:
		result, err = bench(*bootstrap)
	default:
		err = fmt.Errorf("`vectors OURS.json` or `bench` is wanted")
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}
