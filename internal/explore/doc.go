// Package explore visits every state that a small model of production code can reach, and finds
// the shortest way to a state that breaks a promise.
//
// # Promise
//
// [Model.Explore] returns only after it has checked every state that the steps of the model reach,
// or with a [Violation], whose script is as short as any that breaks a promise. The same model
// gives the same result each time.
//
// # Picture
//
//	Start ──► Steps ──► Next ──► Key known? ── yes ──► nothing
//	             ▲                   │ no
//	             │                   ▼
//	             └── queue ◄── Check: holds? ── no ──► Violation: the names of the steps from Start
//
// # Rules
//
//   - The steps of a model call the functions of production: what delivers a record calls the merge
//     of the catalogue. A model that repeats their logic proves nothing about them.
//   - A step never changes the state from which it starts.
//   - Two states with the same [Model.Key] must behave alike from then on. A key that leaves
//     something out hides states; a key that keeps too much repeats them.
//   - Loss needs no step: a delivery that does not happen is a loss. A repeated delivery is the same
//     step again.
//   - Each model is tested with planted faults, which it must find.
//
// The search is breadth first, as in explicit-state model checkers such as SPIN and TLC (Holzmann,
// "The Model Checker SPIN", IEEE Transactions on Software Engineering 23(5), 1997).
package explore
