package selection

import "time"

// Instant is a monotonic time: nanoseconds since an epoch of the caller's
// choice, normally time.Since(epoch) with an epoch taken when the process
// started. All calls to one Balancer use the same epoch. Instants of different
// goroutines may arrive slightly out of order.
type Instant time.Duration

// tickShift makes a tick 2^17 ns, about 131 µs: fine enough that busy endpoints do not
// lose samples, coarse enough that 32 bits last 6.5 days. Ages are computed as signed
// differences, so stamps are correct up to half of that, and Refresh moves older stamps
// forward (see maxAge).
const tickShift = 17

// ticksPerSecond converts time constants into ticks.
const ticksPerSecond = float32(1e9) / (1 << tickShift)

// maxAge, about 18 minutes, is the age at which Refresh stops the ageing of a
// stamp. Every average has relaxed completely by then: e^(-1100 s / 10 s) is 0.
const maxAge = 1 << 23

// tick is a truncated Instant that fits into one atomic word together with a float32.
type tick uint32

func (t Instant) tick() tick { return tick(uint64(t) >> tickShift) }

// since returns the ticks from stamp to t, 0 when the stamp is newer (another
// goroutine read the clock later).
func (t tick) since(stamp tick) int32 { return max(int32(t-stamp), 0) }
