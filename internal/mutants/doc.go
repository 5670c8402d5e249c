// The command mutants plants faults in the packages that decide, one at a time, and runs their
// tests: a fault that no test notices is a promise that no test holds.
//
// # Promise
//
// Each fault that was tried is counted exactly once, as caught, survived or not compiled. No file of the
// checkout changes: the compiler reads the faulty file through an overlay. The same seed tries the
// same faults of the same source.
//
// # Picture
//
//	file.go ──► faults ──► sample by seed ──► not run by any test ─────────────────► survived
//	                                     └──► go test -c -overlay ──► does not compile: not counted
//	                                                             └──► its tests ──► pass, and pass with the
//	                                                                           │    fault alone: survived
//	                                                                           └──► fail or hang: caught
//
// # Rules
//
//   - A fault is a small mistake of a person: a bound off by one, a swapped operator, a check that is
//     dropped or negated, an assignment or a call that is missing. Lines of the log and locks get none:
//     no test should depend on the first, and the race detector finds the second.
//   - All faults of a sample are compiled together, and the environment chooses one (planted.go): so a
//     fault costs the time of its tests.
//   - Tests must fail twice: one that fails by chance has caught nothing.
//   - Only the tests of the package itself count, with -short: what an end-to-end test would catch
//     counts as survived.
//   - A survivor gets a test, or a reason in survivors.txt. The target fails when a package has a survivor
//     with neither. Scores count survivors with a reason as survivors.
//
// The faults are those of DeMillo, Lipton and Sayward, "Hints on test data selection" (IEEE Computer
// 11(4), 1978), sampled, and without lines that no test should hold (Petrović and Ivanković, "State
// of mutation testing at Google", ICSE-SEIP 2018).
package main
