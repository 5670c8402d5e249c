package membership

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
)

// distant returns an address at which another is reached with this delay in each direction.
func distant(t *testing.T, addr string, delay time.Duration) string {
	l := procs.Listen(t)
	carry := func(to, from net.Conn) {
		type part struct {
			at   time.Time
			data []byte
		}
		parts := make(chan part, 1000)
		go func() {
			defer close(parts)
			for {
				b := make([]byte, 4096)
				n, err := from.Read(b)
				if err != nil {
					return
				}
				parts <- part{time.Now().Add(delay), b[:n]}
			}
		}()
		for p := range parts {
			time.Sleep(time.Until(p.at))
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		_ = to.Close()
		_ = from.Close()
		for range parts { // its reader ends with the connection
		}
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				_ = near.Close()
				continue
			}
			go carry(near, far)
			go carry(far, near)
		}
	}()
	return l.Addr().String()
}

// A region that was cut off during a rotation has only relays of other regions to catch up from.
func TestAMemberThatMissedARotationCatchesUpFromADistantRelay(t *testing.T) {
	for name, delay := range map[string]time.Duration{
		"whose hello comes within the time of a probe": 60 * time.Millisecond,
		"whose hello comes later":                      160 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := authority(t)
			relay := start(t, func(c *Config) { c.ID, c.Keyring = "r1", keyring(t, 2); certified(t, a, c, nil) })
			lagging := start(t, func(c *Config) {
				c.ID, c.Role, c.Seeds, c.Keyring = "w1", identity.RoleWorker, []string{distant(t, relay.Addr(), delay)}, keyring(t, 1)
				certified(t, a, c, nil)
			})
			relay.await(t, "the one that was away", sees("r1", "w1"))
			if got := lagging.cfg.Keyring.Fingerprints(); !slices.Equal(got, prints(2)) {
				t.Errorf("its keys are %v, want only the fleet's", got)
			}
		})
	}
}
