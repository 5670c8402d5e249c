package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/ringway/ringway/advertise"
	h2 "github.com/ringway/ringway/internal/proxy/http2"
)

// The service works on what it has, and its window is closed meanwhile: the exchange waits for it to
// read, not for the client.
func TestAStreamWhoseServicePausesHasTheLongerOfTheTimesForAnAnswerAndForProgress(t *testing.T) {
	const silence = time.Minute
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		for _, c := range []struct{ limit, pause time.Duration }{
			{3 * time.Second, 10 * time.Second}, {3 * time.Second, time.Hour}, {2 * time.Minute, 90 * time.Second}, {2 * time.Minute, time.Hour},
		} {
			limit, pause := c.limit, c.pause
			synctest.Test(t, func(t *testing.T) {
				got, over := make(chan int64, 1), make(chan struct{})
				p, end := served(t, protocol, &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					select {
					case <-time.After(pause):
					case <-over:
					}
					n, _ := io.Copy(io.Discard, r.Body)
					got <- n
				})})
				const size = 8 << 20
				body, send := io.Pipe()
				go func() {
					_, _ = io.Copy(send, strings.NewReader(strings.Repeat("x", size)))
					_ = send.Close()
				}()
				r := httptest.NewRequest(http.MethodPost, "/", body)
				r.ContentLength, r.ProtoMajor, r.ProtoMinor = -1, 2, 0
				began := time.Now()
				res, fault := p.Carry(httptest.NewRecorder(), r, &Options{Deadline: began.Add(limit), AfterBody: limit, Progress: silence})
				_ = send.Close()
				_ = body.Close()
				after := time.Since(began)
				if most := max(limit, silence); pause < most {
					if n := <-got; fault != nil || n != size {
						t.Errorf("%s: after a pause of %v the service got %d bytes, %v", protocol, pause, n, fault)
					}
				} else if fault == nil || !fault.Timeout() || fault.Client() || res.Silent != SilentNone || after < most || after > most+time.Second {
					t.Errorf("%s: a service that never reads: %v (silent: %v) after %v, want %v", protocol, fault, res.Silent, after, most)
				}
				close(over)
				end()
			})
		}
	}
}

// arrived is a body over HTTP/2 that is whole and not read.
type arrived struct{ *strings.Reader }

func (b arrived) Buffered() (int, bool) { return b.Len(), true }
func (arrived) Close() error            { return nil }

// A call of gRPC has no length. Its client has ended its side, and the service takes but a part.
func TestARequestThatIsWholeHasTheTimeForAnAnswerAlsoWhileItIsSent(t *testing.T) {
	const limit = 3 * time.Second
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		synctest.Test(t, func(t *testing.T) {
			over := make(chan struct{})
			p, end := served(t, protocol, &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over })})
			r := httptest.NewRequest(http.MethodPost, "/", arrived{strings.NewReader(strings.Repeat("x", 8<<20))})
			r.ContentLength, r.ProtoMajor, r.ProtoMinor = -1, 2, 0
			began := time.Now()
			_, fault := p.Carry(httptest.NewRecorder(), r, &Options{Deadline: began.Add(limit), AfterBody: limit, Progress: time.Minute})
			if after := time.Since(began); fault == nil || !fault.Timeout() || after > limit+time.Second {
				t.Errorf("%s: %v after %v", protocol, fault, after)
			}
			close(over)
			end()
		})
	}
}

// A service names how large a list of fields may be that it accepts. Larger trailers are the client's
// fault, and are found when its body has been sent.
func TestTrailersThatTheServiceDoesNotAcceptAreTheClientsFault(t *testing.T) {
	for name, c := range map[string]struct {
		length int64
		window uint32
	}{"a body that is sent at once": {4, 100}, "one that a goroutine sends": {noLength, 100}, "one that waits for the window": {4, 0}} {
		near, far := net.Pipe()
		go func() { // a service whose lists have 1 KiB at most
			if _, err := io.ReadFull(far, make([]byte, len(h2.Preface))); err != nil {
				return
			}
			framer := http2.NewFramer(far, far)
			_ = framer.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1 << 10}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: c.window})
			for {
				f, err := framer.ReadFrame()
				if err != nil {
					return
				}
				if f.Header().Type == http2.FrameHeaders {
					_ = framer.WriteWindowUpdate(1, 100)
				}
			}
		}()
		p, err := NewPool(Config{Address: "service:80", Protocol: advertise.H2C, Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.h2.mu.Lock()
		conn := p.h2.conns[0]
		p.h2.mu.Unlock()
		<-conn.Ready() // the settings of the service have arrived
		r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(strings.NewReader("body")))
		r.ContentLength, r.ProtoMajor, r.ProtoMinor = c.length, 2, 0
		r.Trailer = http.Header{"X-Sum": {strings.Repeat("y", 2<<10)}}
		_, fault := p.Carry(httptest.NewRecorder(), r, &Options{Deadline: time.Now().Add(10 * time.Second)})
		if fault == nil || !fault.Client() || !errors.Is(fault.Err, h2.ErrHeadTooLarge) {
			t.Errorf("%s: %v", name, fault)
		}
		_ = far.Close()
		p.Close()
	}
}
