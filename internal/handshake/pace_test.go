package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func remote(addr string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)) }

func TestASourceBeginsNoMoreHandshakesThanItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, lasts = 2000, 10 * time.Second
		pace, each := NewPace(), perProcessor*runtime.GOMAXPROCS(0)
		begun, refused := make(chan int, clients), make(chan int, clients)
		ctx, stop := context.WithTimeout(t.Context(), lasts)
		defer stop()
		for range clients { // all of one source, each as fast as it can
			go func() {
				var n, no int
				for ctx.Err() == nil {
					switch err := pace.Wait(ctx, remote("10.0.0.1:1")); {
					case err == nil:
						n++
					case errors.Is(err, ErrPace):
						no++
						time.Sleep(50 * time.Millisecond) // for another connection
					}
				}
				begun <- n
				refused <- no
			}()
		}
		time.Sleep(lasts / 2)
		before := time.Now()
		for i := range 100 {
			if err := pace.Wait(t.Context(), remote(fmt.Sprintf("10.0.0.2:%d", i+1))); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(before); took != 0 {
			t.Errorf("handshakes of another source wait %v", took)
		}
		all, no := 0, 0
		for range clients {
			all, no = all+<-begun, no+<-refused
		}
		if most := each*int(lasts+paceBurst)/int(time.Second) + each; all > most || all < most/2 || no == 0 {
			t.Errorf("%d handshakes began in %v, at most %d may; %d were refused", all, lasts, most, no)
		}
		time.Sleep(paceBurst + paceWait)
		for range each {
			if err := pace.Wait(t.Context(), remote("10.0.0.1:1")); err != nil {
				t.Fatalf("the source is still refused when it is silent: %v", err)
			}
		}
	})
}

func TestHandshakesThatAreReturnedDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := NewPace()
		begun := time.Now()
		for range 100 * perProcessor * runtime.GOMAXPROCS(0) {
			if err := pace.Wait(t.Context(), remote("10.0.0.1:1")); err != nil {
				t.Fatal(err)
			}
			pace.Return(remote("10.0.0.1:1"))
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("they wait %v", took)
		}
	})
}

func TestSourcesThatAreSilentAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := NewPace()
		for i := range 100_000 {
			if i%1000 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
			if _, ok := pace.reserve(originOf(remote(fmt.Sprintf("[2001:db8:%x:%x::1]:1", i>>16, i&0xffff))), time.Now()); !ok {
				t.Fatal("a new source is refused")
			}
		}
		if n := len(pace.next); n > 50_000 {
			t.Errorf("%d sources are remembered", n)
		}
	})
}
