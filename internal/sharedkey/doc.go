// Package sharedkey distributes one HMAC key to all relays of a fleet without any
// configuration, so that a sticky-session cookie signed by one relay is valid at every
// other.
//
// # Promise
//
// Once Ready returns nil, this relay has a key and signs with it. While one relay that
// holds the key can be reached, no relay generates another. Relays that were cut off from
// each other and generated two keys agree on the older one as soon as they see each other,
// and signatures of the younger one stay valid until it expires, on all of them. The key
// itself appears in no log, error, metric or JSON except the answer to a peer; its
// fingerprint, the first 8 hex digits of its SHA-256, does.
//
// # Picture
//
//	Config.Value ─► Config.File ─► peers ──────────────────────► generated
//	                (also later)   older relays, then the rest   by the oldest relay,
//	                               every Interval                 or by this one, loudly,
//	                                     │                        Attempts after it joined
//	                                     ▼
//	    Handler ◄── atomic pointer ◄── Run ◄── checks the others until it ends: forks
//	 GET Path: answers   │
//	 other relays        └──► Sign, Verify, Key, Ready, Watch
//
// # Who is asked, who generates
//
// Relays are ordered by epoch, then id. The epoch is the boot time, so a restarted relay is
// young, and the others know at least as much. A relay without a key asks every live older
// relay simultaneously; if none of them has the key, it asks every other live relay. Only
// the oldest relay generates a key, and only if it has joined, its view of the cluster is
// not degraded, it saw the same relays in two consecutive attempts, and all of them
// answered that they have no key. Every live relay must answer, because one that does not
// answer may hold the key. A leaving relay is asked, but its answer is not required, and it
// does not generate a key. A relay that gossips no address gives its key to no other, and
// counts as absent. Gates ask relays, because they verify cookies as well, but are
// never asked and never generate: a gate without relays has no use for a key.
//
// # Which key is older
//
// A key contains the epoch and id of the instance that generated it. The key with the
// lowest (epoch, id) wins, then the lowest SHA-256. Epochs come from the clocks of
// different hosts; the clocks need not be correct, because any order on which all relays
// agree is sufficient. A key that an operator set, by value or file, has epoch 0 and no id
// and so wins over all generated keys. A relay with a configured key always signs with that
// key, and its answers contain that it is configured there. A relay without one follows such an
// answer, of several different ones the oldest, so that a key that an operator replaces is given
// up, whichever of the two is older.
//
// # Forks
//
// A relay that receives a key other than its own accepts that key for verification for
// Retire. The relay that keeps its key does this as well; otherwise cookies of the other
// side would be valid at only a part of the fleet. Answers contain the retired keys with
// their remaining time, as a duration and not a date, so that a relay started later accepts
// them as well. A gate follows the relays: if every live relay answered and none holds the
// gate's key any more, the gate takes theirs, older or not.
//
// # Transport
//
// With certificates (Config.Authorize) an answer is sent over TLS to peers that the
// function admits. Without certificates it is sealed with the gossip key (Config.Seal):
// HKDF-SHA-256 with a fresh salt derives a key for this one answer, and AES-256-GCM seals
// it with the asker's nonce as associated data, so that a recorded answer is refused. With
// neither, New requires Config.Insecure.
//
// # Key file
//
// The file may appear, or be replaced, while the relay runs: it is read at every attempt
// and every check, and the key that it replaces is still accepted for verification. If the
// file exists but is invalid, New fails; if it becomes invalid later, that is logged and
// the current key stays in use.
//
// # Rules
//
//   - The listener that serves Handler is bound before Run begins; otherwise the oldest
//     relay and the other relays would wait for each other.
//   - Run is the only writer after New. Readers take one atomic load; no lock is held while
//     a peer is asked. Run waits for all requests that it started.
//   - Serve Handler only on the peer listener, never on the ingress.
package sharedkey
