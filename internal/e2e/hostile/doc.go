// Package hostile attacks a fleet of real processes with certificates and a gossip key, and
// shows that the attacks have no effect.
//
// Promise: each test is one attack and names the secrets of the attacker. Its assertions
// use only what is visible from outside: requests through the ingress, the admin API,
// /metrics, and the data that the listeners of the attacker received.
//
//	outsider     the gossip key and a UDP socket     forges gossip, answers probes
//	turncoat     a worker's certificate and the key  a member that lies about its offers
//	stranger     nothing                             connections, requests, recorded packets
//	    │
//	    ▼
//	relay r1 r2 …  worker w1 w2 …      each a process on its own loopback address
//
// Rules: every test has its own fleet. A test first waits until the attack has arrived,
// which a relay shows by accepting the data or by counting a refusal, so that no test
// passes because nothing was sent. Then the test asserts.
package hostile
