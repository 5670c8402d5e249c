package upstream_test

import (
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// net/http sends an update for the connection and one for the stream after each 4 KiB that multipart
// reads.
func TestALongMultipartUploadToAServiceInGoArrives(t *testing.T) {
	const size = 20 << 20
	service := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mr, err := r.MultipartReader()
		if err != nil {
			t.Error(err)
			return
		}
		part, err := mr.NextPart()
		if err != nil {
			t.Error(err)
			return
		}
		if n, err := io.Copy(io.Discard, part); n != size || err != nil {
			t.Errorf("%d bytes of %d: %v", n, size, err)
		}
		w.WriteHeader(http.StatusNoContent)
	})}
	service.Protocols.SetUnencryptedHTTP2(true)
	in := startIngress(t, newPool(t, upstream.Config{Address: procs.Serve(t, service), Protocol: advertise.H2C}), nil)
	body, w := io.Pipe()
	parts := multipart.NewWriter(w)
	go func() {
		part, err := parts.CreateFormFile("file", "large")
		for left := size; left > 0 && err == nil; left -= 1 << 20 {
			_, err = part.Write(make([]byte, 1<<20))
		}
		_ = w.CloseWithError(errors.Join(err, parts.Close()))
	}()
	resp, err := http.Post("http://"+in.addr+"/", parts.FormDataContentType(), body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Error(resp.Status)
	}
	if out := within(t, in.outcomes, "outcome"); out.err != nil {
		t.Error(out.err)
	}
}
