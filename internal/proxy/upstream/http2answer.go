package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/ringway/ringway/internal/proxy/http2"
	"github.com/ringway/ringway/internal/wire"
)

// informational passes a 1xx answer to the client. The server of the client sends its own 100 when
// the body is read. The fields of any other are in the map for this one head only, so that the
// final head does not have them as well.
func (s *h2Stream) informational(head *http2.Head) {
	if head.Status == http.StatusContinue {
		s.ask()
	}
	if head.Status == http.StatusContinue || !s.r.ProtoAtLeast(1, 1) {
		return
	}
	h := s.w.Header()
	var added []string
	for _, f := range head.Fields {
		name := http2.CanonicalName(f.Name)
		if _, ok := h[name]; ok && !slices.Contains(added, name) || framingField(name) || !s.keeps(name) {
			continue
		}
		h[name] = append(h[name], f.Value)
		added = append(added, name)
		s.markSecret(name, f)
	}
	s.progress.writing.Store(true) // the client may accept nothing
	s.w.WriteHeader(head.Status)
	s.progress.wrote()
	for _, name := range added {
		delete(h, name)
	}
}

// keeps reports whether a field of the answer may reach the client. Package http2 has refused
// the fields of a connection.
func (s *h2Stream) keeps(name string) bool {
	return name != "Te" && keepsResponse(s.x, name)
}

// The names in HTTP/2 of the fields from endpoints to relays.
var loadName, failedName = http2.LowerName(wire.LoadHeader), http2.LowerName(wire.FailedHeader)

// respond passes the head of the final answer to the client; that of a tunnel waits for Deliver. What
// sidecars and relays report in fields is read first, because it decides whether the client gets the
// answer at all. From the head on the exchange is committed.
func (s *h2Stream) respond(head *http2.Head) (begun bool, _ *Fault) {
	s.res.Status = head.Status
	retryAfter, loads := false, 0
	for i := range head.Fields {
		switch f := &head.Fields[i]; f.Name {
		case loadName:
			if s.res.Load = parseLoad(f.Value); loads > 0 {
				s.res.Load = -1
			}
			loads++
		case "retry-after":
			retryAfter = true
		case failedName:
			s.res.Failed = f.Value
		case "content-type":
			s.res.Call = wire.CallType(f.Value)
		case "grpc-status": // of an answer without a body
			s.res.CallStatus = f.Value
		}
	}
	// Any 2xx opens the tunnel of a CONNECT (RFC 9110 §9.3.6). It becomes a 101 for the handler and
	// for a client over HTTP/1.1.
	if s.key != "" && s.res.Status < 300 {
		return s.switchProtocols(head), nil
	}
	s.res.Shed = shed(s.res.Status, s.res.Load, retryAfter)
	if s.res.Failed != "" {
		for _, f := range head.Fields {
			if name := http2.CanonicalName(f.Name); slices.Contains(againFields, name) {
				s.res.Again = append(s.res.Again, wire.Field{Name: name, Value: f.Value})
			}
		}
	}
	if s.x.Sidecar && s.res.Failed != "" {
		s.closeUnread()
		return false, s.fail(StageService, errBroken).fromSidecar(s.res.Failed)
	}
	if s.x.OnHead != nil && !s.x.OnHead(s.res) {
		s.res.Dropped = true
		return false, nil
	}
	h := s.w.Header()
	passer, passes := s.w.(fieldPasser)
	if !passes || !s.pass(passer, head) {
		s.fill(h, head)
	}
	if s.res.Status == http.StatusNoContent {
		delete(h, "Content-Length") // RFC 9110 §8.6
	}
	s.x.addResponse(h, s.x.SetCookie != "" && sharable(caching(head)))
	if _, ok := h["Content-Type"]; !ok && !passes {
		h["Content-Type"] = nil // otherwise net/http guesses a type
	}
	s.closeUnread()
	s.committed = true
	s.progress.answering.Store(true)
	s.w.WriteHeader(s.res.Status)
	return true, nil
}

// Deliver implements Answer.
func (s *h2Stream) Deliver() (Result, *Fault) {
	defer s.leave()
	switch {
	case s.res.Status == http.StatusSwitchingProtocols:
		return s.finish(s.openTunnel(s.w.Header()))
	case bodyless(s.r.Method, s.res.Status):
		return s.finish(nil)
	}
	err := s.copyBody()
	if err == nil {
		s.passTrailers()
	}
	return s.finish(err)
}

// Read implements Answer.
func (s *h2Stream) Read(p []byte) (int, error) {
	s.progress.wrote()
	defer s.progress.writing.Store(true)
	if bodyless(s.r.Method, s.res.Status) {
		s.ended = true
		return 0, io.EOF
	}
	n, err := s.s.Read(p)
	s.res.BytesOut += int64(n)
	if left, end := s.s.Buffered(); err == nil && left == 0 && end {
		err = io.EOF
	}
	switch {
	case err == io.EOF:
		s.passTrailers()
		s.ended = true
	case err != nil:
		s.fault = s.fail(StageBody, err)
		return n, s.fault
	}
	return n, err
}

// End implements Answer. A body that was not read to its end counts as one that has arrived if
// nothing more of it can come.
func (s *h2Stream) End() (Result, *Fault) {
	defer s.leave()
	if _, whole := s.s.Buffered(); !s.ended && s.fault == nil && (s.r.Context().Err() != nil || !whole) {
		s.fault = s.fail(StageClient, context.Canceled)
	}
	return s.finish(s.fault)
}

// finish ends the sending of the body.
func (s *h2Stream) finish(err *Fault) (Result, *Fault) {
	if s.sent != nil {
		s.endBody()
	}
	if err != nil {
		err.bodyConsumed = err.bodyConsumed || s.body != nil && s.body.consumed.Load() // until it was stopped
	}
	return s.res, err
}

// passTrailers passes on what follows the body.
func (s *h2Stream) passTrailers() {
	trailers := s.s.Trailers()
	if len(trailers) > 0 { // otherwise a short answer over HTTP/1.1 gets a length
		s.progress.writing.Store(true)
		_ = http.NewResponseController(s.w).Flush()
		s.progress.wrote()
	}
	passer, passes := s.w.(fieldPasser)
	for _, f := range trailers {
		switch name := http2.CanonicalName(f.Name); {
		case !trailerField(name) || !s.keeps(name):
		case passes:
			passer.AddTrailer(f)
		default:
			s.w.Header().Add(http.TrailerPrefix+name, f.Value)
		}
		if f.Name == "grpc-status" {
			s.res.CallStatus = f.Value
		}
	}
}

// fieldPasser is an http.ResponseWriter that takes the fields of an answer as they are in
// HTTP/2, as the one of package downstream for HTTP/2 does.
type fieldPasser interface {
	// PassField adds a field to the head of the final answer. If it returns false, the field must
	// be added to Header.
	PassField(http2.Field) bool
	// NeverIndex marks a field of Header, by its canonical name, as one that is not indexed.
	NeverIndex(name string)
	// AddTrailer adds a field behind the body.
	AddTrailer(http2.Field)
}

// pass gives the end-to-end fields to w. It returns false if it has given none, because some
// must be rewritten. A Trailer may name fields that the client does not get, so an answer with one
// goes through the map.
func (s *h2Stream) pass(w fieldPasser, head *http2.Head) bool {
	for i := range head.Fields {
		if head.Fields[i].Name == "trailer" {
			return false
		}
	}
	for _, f := range head.Fields {
		if name := http2.CanonicalName(f.Name); s.keeps(name) && !w.PassField(f) {
			h := s.w.Header()
			h[name] = append(h[name], f.Value)
			s.markSecret(name, f)
		}
	}
	return true
}

// caching returns the fields that sharable reads.
func caching(head *http2.Head) http.Header {
	kept := http.Header{}
	for _, f := range head.Fields {
		if f.Name == "cache-control" || f.Name == "expires" {
			kept.Add(f.Name, f.Value)
		}
	}
	return kept
}

// markSecret keeps a field of the answer out of the indexes of the client's connection if the
// endpoint has done so.
func (s *h2Stream) markSecret(name string, f http2.Field) {
	if w, ok := s.w.(fieldPasser); ok && f.Sensitive {
		w.NeverIndex(name)
	}
}

// fill adds the fields of the answer to h. One slice holds all value lists.
func (s *h2Stream) fill(h http.Header, head *http2.Head) {
	values := make([]string, len(head.Fields))
	for i := range head.Fields {
		f := &head.Fields[i]
		name := http2.CanonicalName(f.Name)
		if !s.keeps(name) {
			continue
		}
		values[i] = f.Value
		s.markSecret(name, *f)
		if name == "Trailer" {
			if values[i] = s.x.keptNames(f.Value); values[i] == "" {
				continue
			}
		}
		if before, ok := h[name]; ok {
			h[name] = append(before, values[i])
			continue
		}
		h[name] = values[i : i+1 : i+1]
	}
}

// copyBody passes the body on as it arrives. It flushes only before it must wait for more,
// so that frames that arrive together are sent together. The window of the stream opens only as the
// body is read here. So a client that reads slowly slows the endpoint down on this stream, and no
// other exchange on the connection.
func (s *h2Stream) copyBody() *Fault {
	in := lateBuffers.Get().(*lateBuffer)
	defer in.free()
	unflushed := true
	for {
		if n, end := s.s.Buffered(); n == 0 && !end && unflushed {
			s.progress.writing.Store(true)
			err := http.NewResponseController(s.w).Flush()
			s.progress.wrote()
			if err != nil && !errors.Is(err, http.ErrNotSupported) {
				return s.fail(StageClient, err)
			}
			unflushed = false
		}
		p, err := s.s.ReadLate(in.take)
		if len(p) > 0 {
			s.progress.moved.Store(true)
			s.progress.writing.Store(true)
			m, werr := s.w.Write(p)
			s.progress.wrote()
			s.res.BytesOut += int64(m)
			if werr != nil {
				return s.fail(StageClient, werr)
			}
			unflushed = true
		}
		in.drop()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return s.fail(StageBody, err)
		}
	}
}

// closeUnread makes the server close a connection of HTTP/1.1 whose request body was not read to
// its end. The rest of the body could be read as a new request.
func (s *h2Stream) closeUnread() {
	if s.r.ProtoMajor == 1 && s.body != nil && !s.body.ended.Load() && !s.committed {
		s.w.Header()["Connection"] = []string{"close"}
	}
}
