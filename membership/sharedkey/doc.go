// Package sharedkey gives all relays of a fleet one HMAC key, without anybody
// configuring it, so that a sticky-session cookie signed by one relay is good at
// every other.
//
// Promise: once Ready returns nil this relay signs with a key that never becomes
// worse than it is: as long as one relay that holds the key can be reached,
// nobody makes another. Relays that were cut off from each other and made two
// keys agree on the older one as soon as they see each other, and what was
// signed with the younger one stays good until it expires, on all of them. The
// key itself appears in no log, error, metric or JSON but the answer to a peer;
// its fingerprint, the first 8 hex digits of its SHA-256, does.
//
//	Config.Value ─► Config.File ─► peers ──────────────────────► generated
//	                (also later)   older relays, then the rest   by the oldest relay,
//	                               every Interval                 or by this one, loudly,
//	                                     │                        Attempts after it joined
//	                                     ▼
//	    Handler ◄── atomic pointer ◄── Run ◄── looks at the others for ever: forks
//	 GET Path: answers   │
//	 other relays        └──► Sign, Verify, Key, Ready, Watch
//
// Who is asked, who generates. Relays are ordered by epoch, then id: the boot
// time, so a restarted relay is a new, young one and knows nothing that the
// others do not know better. A relay without a key asks every live older relay,
// all at once; if none of them has the key, every other live relay. The oldest
// generates, and only when it is joined, its view of the cluster is not
// degraded, it saw the same relays in two attempts running, and all of them
// answered that they have no key. An answer is needed from everyone alive: one
// that does not answer may hold the key. A leaving relay is asked but neither
// waited for nor expected to generate. Gates ask relays, as they verify cookies
// too, but are never asked and never generate: a gate without relays can do
// nothing anyway.
//
// Older. A key carries who generated it: epoch and id of that instance. The key
// of the lowest (epoch, id) wins, then the lowest SHA-256. Epochs are wall clocks
// of two hosts; no clock is trusted for more than an order that all agree on,
// whichever key it prefers. A key that an operator gave, by value or file,
// carries epoch 0 and no id and so wins over all generated ones: relays without
// it follow it. A relay that was given a key always signs with that one.
//
// Forks. Whoever meets a key other than its own accepts it for verification for
// Retire: the side that keeps its key too, or cookies of the other side would be
// good at one half of the fleet only. Answers carry the retired keys with the
// time they have left, a duration and no date, so that a relay started later
// verifies them as well. A gate follows the relays: when every live relay
// answered and none holds its key any more, it takes theirs, older or not.
//
// On the way. With certificates (Config.Authorize) an answer goes over TLS to
// whoever the function admits. Without, it is sealed under the gossip key
// (Config.Seal): HKDF-SHA-256 with a fresh salt makes a key for this one answer,
// AES-256-GCM seals it with the asker's nonce as associated data, so that a
// recorded answer is refused. With neither, New wants Config.Insecure.
//
// The file may appear, or be replaced, while the relay runs: it is read again at
// every attempt and every look, and the key it replaces stays good for
// verification. A file that is there and bad stops New; one that turns bad later
// is reported and the key in use stays.
//
// Rules:
//
//   - The listener that serves Handler is bound before Run begins, or the oldest
//     relay and its followers wait for each other.
//   - Run is the only writer after New. Readers take one atomic load; no lock is
//     held while a peer is asked. Run waits for all requests that it began.
//   - Serve Handler on the peer listener only, never on the ingress.
package sharedkey
