// Package trace reads measured service times and arrivals from a file: CSV with a header, or
// the request log of a relay.
//
// # Promise
//
// Every byte is hostile: lines, rows and values are bounded, and an error names the line, the
// cause and the remedy. Lines of a request log that are no measurement of a worker are skipped
// and counted, never guessed.
//
// # Picture
//
//	service_ms,arrival_s          {"timestamp":…,"ringway.attempts":[…]}
//	        └────────── Read ──────────┘
//	                     ▼
//	      Trace ── Service   durations, to draw from
//	            ── Gaps      between arrivals ÷ their mean, to replay at any rate
//
// # What a request log measures
//
// The service time is measured in the last attempt, from the request sent to the beginning of the
// answer, without the wait for a connection. It includes the wait in the queue of the worker,
// so a log of a busy fleet makes a plan too careful.
package trace
