// Package hostile attacks a fleet of real processes with certificates and a gossip
// key, and shows what the attacker gets: nothing.
//
// Promise: each test is one attack and says what the attacker holds. What it asserts
// is seen from outside: requests through the ingress, the admin API, /metrics, and
// what the attacker's own listeners received.
//
//	outsider     the gossip key and a UDP socket     forges gossip, answers probes
//	turncoat     a worker's certificate and the key  a member that lies about its offers
//	stranger     nothing                             connections, requests, recorded packets
//	    │
//	    ▼
//	relay r1 r2 …  worker w1 w2 …      each a process on a loopback address of its own
//
// Rules: every test has a fleet of its own. A test first waits until the attack has
// arrived, which a relay shows by believing it or by counting a refusal, so that no
// test passes because nothing was sent. Then it asserts.
package hostile
