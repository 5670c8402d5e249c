package sharedkey

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/wirefixture"
)

// A fleet has two releases while it is upgraded, and all its relays need one key.
func TestTheSharedKeyOfReleasesIsReadAndWritten(t *testing.T) {
	type key struct {
		Material    string
		GeneratedBy string
		Epoch       uint64
	}
	of := func(k Key) key {
		id, epoch := k.generatedBy()
		return key{hex.EncodeToString(k.body().material), id, epoch}
	}
	read := func(raw []byte) (any, error) {
		a, err := decodeAnswer("shop/prod", raw)
		if errors.Is(err, ErrNoKey) {
			return map[string]any{"none": true}, nil
		}
		if err != nil {
			return nil, err
		}
		value := map[string]any{"key": of(a.Key)}
		for _, r := range a.Retired {
			value["retired "+r.For.String()] = of(r.Key)
		}
		return value, nil
	}
	nonce := bytes.Repeat([]byte{7}, nonceBytes)
	later := map[string]func([]byte) []byte{"a field": func(raw []byte) []byte { return append(raw[:len(raw)-1], `,"later":{"a":[1]}}`...) }}
	refused := map[string]func([]byte) []byte{"another format": func(raw []byte) []byte {
		return bytes.Replace(raw, []byte(`"format":1`), []byte(`"format":2`), 1)
	}}
	var formats []wirefixture.Format
	for name, answer := range map[string]Answer{
		"generated": {Key: newKey(material(1), "relay-1", 1_800_000_000_000)},
		"retired":   {Key: newKey(material(1), "", 0), Retired: []RetiredKey{{newKey(material(2), "relay-2", 5), time.Hour}}},
		"none":      {},
	} {
		encode := func() ([]byte, error) { return encodeAnswer("shop/prod", answer) }
		formats = append(formats, wirefixture.Format{Name: "answer-" + name, Encode: encode, Decode: read, Later: later, Refused: refused},
			wirefixture.Format{
				Name: "answer-" + name + "-sealed", Random: true,
				Encode: func() ([]byte, error) {
					plain, err := encode()
					if err != nil {
						return nil, err
					}
					return seal(material(50), "shop/prod", nonce, plain)
				},
				Decode: func(raw []byte) (any, error) {
					plain, err := unseal(material(50), "shop/prod", nonce, raw)
					if err != nil {
						return nil, err
					}
					return read(plain)
				},
				Later: later,
			})
	}
	for name, seals := range map[string]func(*Config){"request": func(*Config) {}, "request-sealed": sealing} {
		formats = append(formats, wirefixture.Format{
			Name: name, Random: true, // the port, and the nonce
			Encode: func() ([]byte, error) {
				var sent bytes.Buffer
				server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = r.Write(&sent) }))
				defer server.Close()
				_, err := fetchFrom(t, member(server.Listener.Addr()), seals)
				if sent.Len() == 0 {
					return nil, err
				}
				return sent.Bytes(), nil
			},
			Decode: func(raw []byte) (any, error) { return answered(t, raw, seals) },
			Later: map[string]func([]byte) []byte{"a header field": func(raw []byte) []byte {
				return bytes.Replace(raw, []byte("\r\n\r\n"), []byte("\r\nRingway-Later: 1\r\n\r\n"), 1)
			}},
		})
	}
	formats = append(formats, wirefixture.Format{
		Name:   "file",
		Encode: func() ([]byte, error) { return append([]byte(hex.EncodeToString(material(3))), '\n'), nil },
		Decode: func(raw []byte) (any, error) { return parseMaterial(raw) },
	})
	wirefixture.Check(t, formats...)
}

// answered asks a relay with a request as another relay sent it.
func answered(t *testing.T, request []byte, change func(*Config)) (any, error) {
	k, _ := serve(t, change)
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(request)))
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	mux := http.NewServeMux()
	mux.Handle(Path, k.Handler())
	mux.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		text, _ := io.ReadAll(w.Body)
		return nil, errors.New(string(text))
	}
	return map[string]any{"status": w.Code, "path": r.URL.Path}, nil
}
