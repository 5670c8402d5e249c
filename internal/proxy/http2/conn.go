package http2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/internal/proxy/socket"
)

// Preface is what a client sends first (RFC 9113 §3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Config describes one side of a connection.
type Config struct {
	// MaxHead bounds a header list that is received, in bytes as RFC 9113 §6.5.2 counts
	// them. Required.
	MaxHead int
	// MaxStreams is how many streams the other side may have open, and how many Serve calls
	// may run. Only for a server, required there.
	MaxStreams int
	// Window is how many bytes of a body are received before they are read, per stream,
	// until the window grows with the transfer. Default 64 KiB.
	Window int
	// MaxWindow is the size to which the window of a stream grows, and of the window of a
	// connection that bounds what is held of all its streams. Default 1 MiB.
	MaxWindow int
	// Shared means that the other side is a relay or another proxy, on whose connection requests of
	// many clients are: what one of them does not read holds up no other, and their cancellations
	// cost nothing. Only for a server. Default false.
	Shared bool
	// Serve answers a stream that the other side has opened, on a goroutine of its own. It
	// must call Stream.Close. Only for a server, required there.
	Serve func(*Stream)
	// Malformed is called for each header list that is refused. Default: not called.
	Malformed func()
	// Progress is how long the other side may accept no byte while bytes wait for it, those of
	// one stream or of all, and may stop within a frame. Default 0: no limit. See Check.
	Progress time.Duration
	// HeadTimeout bounds the time between the frames of one header list. Default 0: no limit.
	HeadTimeout time.Duration
	// Room is called when Reserve may return a stream after it has returned none, and when the
	// connection accepts no more streams. It must not block and not call the connection. Only
	// for a client. Default: not called.
	Room func()
}

// Conn is one HTTP/2 connection. All methods may be called from any goroutine; Run once.
type Conn struct {
	cfg    Config
	nc     net.Conn
	socket socket.Socket
	plain  bool // the socket has the bytes of the connection, not those of TLS
	client bool

	// The goroutine of Run owns these fields: the bytes that were read, in[from:to], and the
	// header list that is being received.
	in       []byte
	pooled   *[]byte
	from, to int
	take     func() []byte
	drop     func()
	decoder  *hpack.Decoder
	block    headerBlock
	settled  bool          // the first SETTINGS have arrived
	starting atomic.Int32  // workers that have not begun to run
	started  chan struct{} // capacity 1: half of maxStarting have begun to run
	ready    chan struct{} // of a client: closed when they have, and when the connection ends before

	heard   atomic.Bool // something was read since the last Check
	partial atomic.Bool // a frame has arrived in part
	listing atomic.Bool // a header list has arrived in part

	mu         sync.Mutex // guards the fields below, and the streams
	streams    map[uint32]*Stream
	lingering  int      // streams that wait in Linger
	active     int      // streams that count against the limit of streams
	opened     uint32   // the highest stream that was opened
	resets     []uint32 // streams that this side has reset last: frames for them may be on the way
	reset      int      // where the next one goes
	budget     int      // how much the other side may still cost; see control.go
	idleBudget time.Duration
	age        time.Duration  // as the calls of Check count it
	err        error          // why the connection ended
	slots      []*Stream      // wait for a slot, the first one longest
	workers    []chan *Stream // of a server: the workers that wait for a stream
	spare      int            // how many of them were not needed since the last Check

	// What the other side allows.
	maxStreams int // one before its SETTINGS
	// accepted is how many it has accepted when it refused one that its settings allow, and one
	// more for each answer since then.
	accepted        int
	streamWindow    int32 // of new streams
	maxHeaderList   uint32
	connectProtocol bool
	sendWindow      int64

	window   int64 // of the connection
	received int64 // how many bytes the other side may still send
	credit   int64 // how many bytes were read since the last WINDOW_UPDATE
	grown    int64 // how much larger the windows of streams are than Config.Window, where that is counted

	goingAway  bool   // GOAWAY was sent, or Shutdown was called
	lastServed uint32 // streams above are refused once GOAWAY has named it
	away       *GoAwayError
	pinged     bool   // a PING waits for its answer
	pings      int    // PINGs since the last HEADERS or DATA
	asked      uint32 // opened, when the last PING was sent
	silence    time.Duration
	idle       time.Duration

	// What waits to be sent.
	out      []byte
	outPool  *[]byte
	writing  bool          // the goroutine of flush runs
	sendOut  func()        // flush, bound once
	blocked  time.Duration // how long it writes the same bytes
	stuck    time.Duration // how long a frame or a header list is not whole
	lingers  bool          // the other side gets time to read why the connection ends
	cut      bool          // a write failed: what waited was not sent
	waiting  []*Stream     // want to send data, the first one longest
	heads    []*Stream     // of a server: wait to send a header list, the first one longest
	turns    int           // streams that have their turn
	encoder  *hpack.Encoder
	encoded  bytes.Buffer
	finished bool // the connection closes when out is empty
	sealed   bool // nothing more is sent
	flushed  chan struct{}
	room     sync.Cond     // the goroutine of Run: out has become shorter
	over     sync.Cond     // a server's streams: their last one was closed
	draining time.Duration // how long a server waits for the answer to shutdownPing
}

const (
	readBuffer    = 2 * (frameHead + maxFrame)
	headerTable   = 4096 // bytes of each HPACK table
	defaultWindow = 64 << 10
	// sharedWindow is the window of a connection on which those of the streams bound what is held: what all
	// streams may send in a round trip. It is 1.3 Gbit/s with a delay of 100 ms.
	sharedWindow = 16 << 20
	// maxStreamID is the last stream of a connection.
	maxStreamID = 1<<31 - 1
)

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}

func newConn(nc net.Conn, cfg Config, client bool) *Conn {
	if cfg.Window == 0 {
		cfg.Window = defaultWindow
	}
	if cfg.MaxWindow == 0 {
		cfg.MaxWindow = 1 << 20
	}
	if cfg.Malformed == nil {
		cfg.Malformed = func() {}
	}
	if cfg.Room == nil {
		cfg.Room = func() {}
	}
	c := &Conn{
		cfg: cfg, nc: nc, client: client, streams: map[uint32]*Stream{}, budget: maxBudget,
		maxStreams: 1, accepted: maxStreamID, streamWindow: firstWindow, maxHeaderList: 1<<32 - 1, sendWindow: firstWindow, received: firstWindow,
		lastServed: maxStreamID, flushed: make(chan struct{}),
	}
	c.over.L, c.room.L = &c.mu, &c.mu
	if !client {
		c.maxStreams = cfg.MaxStreams
	}
	if _, secured := nc.(*tls.Conn); !secured {
		c.socket.Init(socket.Below(nc))
		c.plain = c.socket.Usable()
	}
	c.take, c.drop = func() []byte { c.takeBuffer(); return c.in }, c.dropBuffer
	c.encoder = hpack.NewEncoder(&c.encoded)
	c.encoder.SetMaxDynamicTableSizeLimit(headerTable)
	c.decoder = hpack.NewDecoder(headerTable, c.block.field)
	c.decoder.SetMaxStringLength(4 * cfg.MaxHead) // a string that is longer is an attack
	c.sendOut = c.flush
	c.block.max = cfg.MaxHead
	return c
}

// NewServer returns the server's side of a connection on which the other side has sent
// read, from the beginning of the preface. Run serves it.
func NewServer(nc net.Conn, cfg Config, read []byte) *Conn {
	c := newConn(nc, cfg, false)
	c.started = make(chan struct{}, 1)
	c.takeBuffer()
	if len(read) > len(c.in) {
		c.in = make([]byte, len(read))
	}
	c.to = copy(c.in, read)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(
		setting{settingMaxStreams, uint32(cfg.MaxStreams)},
		setting{settingMaxHeaderList, uint32(cfg.MaxHead)},
		setting{settingConnectProtocol, 1},
	)
	return c
}

// NewClient returns the client's side of a connection. Run receives the answers.
func NewClient(nc net.Conn, cfg Config) *Conn {
	c := newConn(nc, cfg, true)
	c.ready = make(chan struct{})
	probe(nc)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeOut()
	c.out = append(c.out, Preface...)
	c.begin(setting{settingEnablePush, 0}, setting{settingMaxHeaderList, uint32(cfg.MaxHead)})
	return c
}

// begin sends the settings of this side. The lock is held.
func (c *Conn) begin(settings ...setting) {
	c.takeOut()
	if c.cfg.Window != firstWindow {
		settings = append(settings, setting{settingInitialWindow, uint32(c.cfg.Window)})
	}
	c.out = appendSettings(c.out, settings...)
	if c.window = int64(c.cfg.MaxWindow); !c.bounds() {
		c.window = max(c.window, sharedWindow)
	}
	if more := c.window - firstWindow; more > 0 {
		c.out = appendWindowUpdate(c.out, 0, uint32(more))
		c.received += more
	}
	c.kick()
}

func (c *Conn) takeBuffer() {
	if c.in == nil {
		c.pooled = readBuffers.Get().(*[]byte)
		c.in = *c.pooled
	}
}

func (c *Conn) dropBuffer() {
	if c.in == nil {
		return
	}
	if len(c.in) == readBuffer {
		*c.pooled = c.in
		readBuffers.Put(c.pooled)
	}
	c.in, c.pooled, c.from, c.to = nil, nil, 0, 0
}

// Ready is closed when the other side has sent its settings, or the connection has ended. Until
// then a client has one stream: the number that the other side allows is not known. Only for
// clients.
func (c *Conn) Ready() <-chan struct{} { return c.ready }

// Run receives until the connection ends, and returns why: io.EOF if the other side closed
// it, ErrClosed after Close and at the end of Shutdown. A server's Run returns when all
// streams were closed.
func (c *Conn) Run() error {
	err := c.receive()
	c.partial.Store(false) // the rest of a frame is not awaited any more
	c.listing.Store(false)
	c.mu.Lock()
	var fault connError
	if errors.As(err, &fault) && c.err == nil {
		c.takeOut()
		c.out = appendGoAway(c.out, c.opened, fault.code, fault.reason)
		c.lingers = true
	}
	c.fail(err)
	err = c.err
	c.mu.Unlock()
	<-c.flushed
	c.mu.Lock()
	lingers := c.lingers
	c.mu.Unlock()
	if lingers {
		c.linger(err == ErrClosed) // which ends immediately after a write that failed, because the connection is closed
	}
	c.dropBuffer()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.client && c.active > 0 {
		c.over.Wait()
	}
	return err
}

func (c *Conn) receive() error {
	if !c.client {
		if err := c.need(len(Preface)); err != nil {
			return err
		}
		if string(c.in[c.from:c.from+len(Preface)]) != Preface {
			return connError{ProtocolError, "no preface of HTTP/2"}
		}
		c.from += len(Preface)
	}
	for {
		if err := c.need(frameHead); err != nil {
			return err
		}
		f := parseFrame(c.in[c.from:])
		if f.length > maxFrame {
			return connError{FrameSizeError, "a frame of more than 16384 bytes"}
		}
		if err := c.need(frameHead + f.length); err != nil {
			return err
		}
		payload := c.in[c.from+frameHead : c.from+frameHead+f.length]
		c.from += frameHead + f.length
		if err := c.dispatch(f, payload); err != nil {
			fault, ok := err.(streamError)
			if !ok {
				return err
			}
			if err := c.refuse(fault); err != nil {
				return err
			}
		}
		for c.starting.Load() >= maxStarting {
			<-c.started
		}
	}
}

// maxStarting is how many goroutines may wait for a processor before the reader waits for them. A
// burst of requests that are answered immediately, such as refusals, then needs that many with
// their stacks, and not one for each request.
const maxStarting = 32

// need reads until n bytes are there, at most the size of a buffer.
func (c *Conn) need(n int) error {
	for c.to-c.from < n {
		if c.from == c.to {
			if err := c.await(); err != nil {
				return err
			}
			continue
		}
		if c.from > 0 && c.from+n > len(c.in) {
			c.to = copy(c.in, c.in[c.from:c.to])
			c.from = 0
		}
		c.partial.Store(true)
		c.awaitRoom()
		m, err := c.nc.Read(c.in[c.to:])
		if c.to += m; m > 0 {
			c.heard.Store(true)
			c.partial.Store(false)
			continue
		}
		switch err {
		case nil:
			return io.ErrNoProgress
		case io.EOF:
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// await waits for bytes, and holds no buffer meanwhile if it can.
func (c *Conn) await() error {
	c.from, c.to = 0, 0
	c.awaitRoom()
	if c.plain {
		c.dropBuffer()
		n, err := c.socket.Read(c.take, c.drop)
		c.to = n
		c.heard.Store(true)
		return err
	}
	c.takeBuffer()
	for {
		n, err := c.nc.Read(c.in)
		if n > 0 {
			c.to = n
			c.heard.Store(true)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// awaitRoom waits while a client does not read its answers: no window bounds answers without a
// body.
func (c *Conn) awaitRoom() {
	if c.client {
		return // two sides that wait for each other would never read again
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > unreadLimit && c.err == nil {
		c.room.Wait()
	}
}

// fail ends all streams. The connection closes when what waits was sent. The lock is held.
func (c *Conn) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for _, s := range c.streams {
		s.end(c.errorOf(s, err))
	}
	for _, s := range c.slots {
		s.end(c.errorOf(s, err))
	}
	for _, s := range c.waiting {
		s.queued = false
	}
	clear(c.streams)
	c.slots, c.waiting = nil, nil
	c.endWorkers(len(c.workers))
	if c.client {
		c.active = 0
		c.setReady()
		c.cfg.Room()
	}
	c.finished = true
	c.room.Signal()
	if err != ErrClosed || c.cfg.Progress == 0 {
		_ = c.nc.SetWriteDeadline(time.Now().Add(lastWrites))
	}
	c.kick() // it closes the connection when everything was sent
}

// setReady closes ready once. The lock is held.
func (c *Conn) setReady() {
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
}

// errorOf returns the error of a stream whose connection ends with err.
func (c *Conn) errorOf(s *Stream, err error) error {
	if s.id == 0 {
		return &GoAwayError{unprocessed: true, Code: NoError, Reason: err.Error()}
	}
	switch {
	case c.away != nil:
		return c.away
	case err == io.EOF:
		return io.ErrUnexpectedEOF // io.EOF is the end of a body
	}
	return err
}

// Load returns how many streams are open or wait, and how many may be open.
func (c *Conn) Load() (streams, limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active + len(c.slots), c.limit()
}

// limit returns how many streams a client may have open. The lock is held.
func (c *Conn) limit() int { return min(c.maxStreams, c.accepted) }

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.nc }
