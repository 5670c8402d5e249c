package sharedkey

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
)

const (
	// Path is where Handler is served on the peer listener.
	Path = "/ringway/v1/shared-key"
	// NonceHeader carries the asker's nonce, 32 bytes in hex, when answers are
	// sealed.
	NonceHeader = "Ringway-Nonce"
)

// Results of the answers counter.
const (
	answeredKey     = "key"
	answeredNone    = "none"
	answeredRefused = "refused"
)

// Handler answers other relays on the peer listener, at [Path]: 200 with the
// key, 404 while there is none, 403 for whoever is not admitted, 405 for
// anything but GET. All bodies are JSON, the first two sealed when answers are.
// It works before, while and after Run runs; it never blocks.
func (k *Keeper) Handler() http.Handler { return http.HandlerFunc(k.serve) }

func (k *Keeper) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		writeJSON(w, http.StatusMethodNotAllowed, errorBody("only GET is allowed"))
		return
	}
	nonce, refusal := k.admit(r)
	if refusal != "" {
		k.metrics.answers.WithLabelValues(answeredRefused).Inc()
		k.cfg.Logger.Debug("shared key refused", "asker", r.RemoteAddr, "reason", refusal)
		writeJSON(w, http.StatusForbidden, errorBody(refusal))
		return
	}
	answer, err := k.Answer()
	status, result := http.StatusOK, answeredKey
	if err != nil {
		status, result = http.StatusNotFound, answeredNone
	}
	body, err := encodeAnswer(k.cfg.Label, answer)
	if err == nil && k.cfg.sealing() {
		body, err = seal(k.cfg.Seal()[0], k.cfg.Label, nonce, body)
	}
	if err != nil {
		k.cfg.Logger.Error("shared key not answered", "error", err)
		writeJSON(w, http.StatusInternalServerError, errorBody("internal error"))
		return
	}
	k.metrics.answers.WithLabelValues(result).Inc()
	writeJSON(w, status, body)
}

// admit says why the asker gets no answer; with "" it returns the nonce to seal
// for.
func (k *Keeper) admit(r *http.Request) (nonce []byte, refusal string) {
	switch {
	case k.cfg.Authorize != nil:
		if r.TLS == nil {
			return nil, "the key does not travel in clear text: use TLS"
		}
		if err := k.cfg.Authorize(r); err != nil {
			return nil, "not authorised: " + err.Error()
		}
	case k.cfg.sealing():
		nonce, err := hex.DecodeString(r.Header.Get(NonceHeader))
		if err != nil || len(nonce) != nonceBytes {
			return nil, "answers are sealed here: send " + NonceHeader + " with 32 bytes in hex"
		}
		return nonce, ""
	}
	return nil, ""
}

// Answer is what Handler tells a peer that it admits: the key and the retired
// ones, or [ErrNoKey]. Use it as another keeper's Config.Fetch to connect two of
// one process. Safe for concurrent use.
func (k *Keeper) Answer() (Answer, error) {
	now := k.now()
	ring := k.ring.Load().expire(now)
	if ring.current.IsZero() {
		return Answer{}, ErrNoKey
	}
	a := Answer{Key: ring.current}
	for _, r := range ring.retired {
		a.Retired = append(a.Retired, RetiredKey{r.key, r.until.Sub(now)})
	}
	return a, nil
}

func errorBody(text string) []byte {
	body, _ := json.Marshal(map[string]string{"error": text}) // cannot fail
	return body
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the asker may be gone
}
