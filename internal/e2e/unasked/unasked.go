package unasked

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Kind is a kind of answer behind which bytes come.
type Kind struct {
	// Name is for people, Method that of the request.
	Name, Method string
	// Bodyless is an answer that never has a body, whatever it declares.
	Bodyless bool

	status, rest string // the rest of the head, and the body
}

// Kinds returns all kinds of answers.
func Kinds() []Kind {
	return []Kind{
		{"HEAD", http.MethodHead, true, "200 OK", "Content-Length: 45\r\n\r\n"},
		{"204", http.MethodGet, true, "204 No Content", "\r\n"},
		{"304", http.MethodGet, true, "304 Not Modified", "\r\n"},
		{"length", http.MethodGet, false, "200 OK", "Content-Length: 2\r\n\r\nok"},
		{"chunked", http.MethodGet, false, "200 OK", "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	}
}

// Pauses returns the times after which the bytes come.
func Pauses() []time.Duration {
	var all []time.Duration
	for _, ms := range []int{0, 1, 3, 10, 30, 60} {
		all = append(all, time.Duration(ms)*time.Millisecond)
	}
	return all
}

const (
	// ownPath is the path of a request whose answer nothing follows.
	ownPath = "/own"
	// requestField has the number of a request, answerField that of the request that an answer
	// is for, lateField that of the request whose answer the bytes follow.
	requestField, answerField, lateField = "Request-Number", "Answer-To", "Behind"
	patience                             = 30 * time.Second
)

// Service is an HTTP/1.1 service that sends an answer to no request after each answer, except
// those for the path /own.
type Service struct {
	Kind  Kind
	Pause time.Duration
	// Nagle is a service whose system holds bytes back until those before have been
	// acknowledged, as without TCP_NODELAY.
	Nagle bool

	ln   net.Listener
	done sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	conns map[net.Conn]bool
	held  map[string]time.Duration // by request: how long after its answer the last bytes were written
}

// Start listens on an address, such as 127.0.0.1:0.
func (s *Service) Start(addr string) (err error) {
	s.conns, s.held = map[net.Conn]bool{}, map[string]time.Duration{}
	if s.ln, err = net.Listen("tcp", addr); err != nil {
		return fmt.Errorf("a service that sends unasked bytes: %w", err)
	}
	s.done.Go(func() {
		for {
			c, err := s.ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			s.done.Go(func() {
				s.serve(c)
				_ = c.Close()
				s.mu.Lock()
				delete(s.conns, c)
				s.mu.Unlock()
			})
		}
	})
	return nil
}

// Addr returns the address of the service.
func (s *Service) Addr() string { return s.ln.Addr().String() }

// Stop ends the service and all its connections.
func (s *Service) Stop() {
	_ = s.ln.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}

func (s *Service) serve(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); !ok || tcp.SetNoDelay(!s.Nagle) != nil {
		return
	}
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		number := r.Header.Get(requestField)
		if r.URL.Path == ownPath {
			_, err = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s: %s\r\nContent-Length: 3\r\n\r\nown", answerField, number)
			s.note(number, 0)
		} else {
			err = s.poison(c, number)
		}
		if err != nil {
			return
		}
	}
}

// poison answers a request and sends an answer to none.
func (s *Service) poison(c net.Conn, number string) error {
	if _, err := fmt.Fprintf(c, "HTTP/1.1 %s\r\n%s: %s\r\n%s", s.Kind.status, answerField, number, s.Kind.rest); err != nil {
		return err
	}
	answered := time.Now()
	time.Sleep(s.Pause) // is the service
	_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s: %s\r\nContent-Length: 7\r\n\r\nforeign", lateField, number)
	s.note(number, time.Since(answered))
	return err
}

// note records that everything that belongs to the answer to a request, or follows it, was
// written.
func (s *Service) note(number string, held time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[number] = held
}

// await returns what was noted of a request.
func (s *Service) await(number string) (held time.Duration) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		s.mu.Lock()
		held, ok := s.held[number]
		s.mu.Unlock()
		if ok {
			return held
		}
	}
	return patience
}

// Count is what clients have read.
type Count struct {
	Rounds  int
	Foreign int // answers to other requests, or to none
	Failed  int // requests without an answer of the service
	// Held is for foreign answers that the service has sent later than its pause and Slack: a
	// busy machine has held it up, which shows nothing of the proxy.
	Held int
}

// Slack is how much later than its pause a service may send, so that it still counts.
const Slack = 20 * time.Millisecond

// Add adds another count.
func (c *Count) Add(o Count) {
	c.Rounds += o.Rounds
	c.Foreign += o.Foreign
	c.Failed += o.Failed
	c.Held += o.Held
}

// Client sends pairs of requests, each on its own connection.
type Client struct {
	// Addr of the proxy, Name of the service for a relay.
	Addr, Name string
	// Hurried clients send the next pair when they have their answers. The others wait until
	// the service has written all of them.
	Hurried bool
}

// Ready returns nil if the proxy passes an answer of the service on, which nothing follows.
func (c Client) Ready() error {
	req, err := http.NewRequest(http.MethodGet, "http://"+c.Addr+ownPath, nil)
	if err != nil {
		return err
	}
	req.Close = true
	req.Header.Set("Ringway-Service", c.Name)
	req.Header.Set(requestField, "ready")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.Header.Get(answerField) != "ready" {
		return fmt.Errorf("%s: %s", c.Name, resp.Status)
	}
	return nil
}

// Try sends one pair after the other through a proxy.
func (s *Service) Try(c Client, rounds int) (n Count) {
	for round := range rounds {
		n.Rounds++
		if err := s.pair(c, 2*round, &n); err != nil {
			n.Failed++
		}
	}
	return n
}

func (s *Service) pair(c Client, first int, n *Count) error {
	nc, err := net.Dial("tcp", c.Addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(nc)
	for i, path := range []string{"/poison", ownPath} {
		method, number := http.MethodGet, strconv.Itoa(first+i)
		if i == 0 {
			method = s.Kind.Method
		}
		if _, err := fmt.Fprintf(nc, "%s %s HTTP/1.1\r\nHost: a\r\nRingway-Service: %s\r\n%s: %s\r\n\r\n", method, path, c.Name, requestField, number); err != nil {
			return err
		}
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		_ = resp.Body.Close()
		to, late := resp.Header.Get(answerField), resp.Header.Get(lateField)
		switch {
		case to == number:
		case to == "" && late == "":
			return errors.New(resp.Status)
		case late != "" && s.await(late) > s.Pause+Slack:
			n.Held++
		default:
			n.Foreign++
		}
		if i > 0 && !c.Hurried {
			s.await(number)
		}
		if resp.Close {
			return nil
		}
	}
	return nil
}
