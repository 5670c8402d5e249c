// Package session is how a worker takes part in a fleet without gossip: it keeps a few sessions to
// relays, which report to the others that it lives.
//
// # Promise
//
// A worker holds sessions to the relays of its row, opens a new one before it closes one that is
// not in the row any more, and has at least one again as soon as a relay can be reached.
//
//	worker                                        relay
//	hello(cluster, environment, id, epoch) ------->
//	record (signed) ------------------------------>   lists the worker: package presence
//	        <------------------------------- row(version, relays)
//	beat every 5 s  <---------------------------->  beat every 5 s
//	record, state, leave ------------------------->
//
// # Rules
//
//   - Everything that is read is bounded before it is stored. A frame that cannot be decoded ends
//     the session. One of an unknown kind is skipped, because a later release may send it.
//   - A row is a wish of one relay. A worker follows the rows of all relays that it has a session
//     with: a relay that is cut off and sees only itself takes none of the others away. With
//     certificates a row must come from the relay that it names. The worker dials every address that
//     rows state of a relay, and ignores their epochs.
//   - At the end of a certificate the connection is closed. A second session with the relay begins
//     before that, and replaces the first.
//   - A spare that is open makes up for a relay of the row that cannot be reached.
//   - [Client] has the methods that package advertise and the worker need of a member, so that they
//     do not know how it takes part.
//   - The client's goroutines are owned by Start and end with Close.
package session
