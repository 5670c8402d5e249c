package health

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAProbeHasTheMethodHeadersAndStatusesOfItsCheck(t *testing.T) {
	var asked string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = fmt.Sprintf("%s %s %q %q %q", r.Method, r.URL, r.Header["X-Probe"], r.Header["User-Agent"], r.Header["Accept"])
		if r.Header.Get("X-Probe") == "" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = protocols
	server.Start()
	t.Cleanup(server.Close)
	for _, http2 := range []bool{false, true} {
		for _, c := range []struct {
			text, asked, fails string
		}{
			{"http:/", `GET / [] ["ringway-health"] ["*/*"]`, "answered 418"},
			{"http:/;expect=418", `GET / [] ["ringway-health"] ["*/*"]`, ""},
			{"http:/x?y=z;method=head;header=X-Probe:deep", `HEAD /x?y=z ["deep"] ["ringway-health"] ["*/*"]`, ""},
			{"http:/;method=POST;header=x-probe: a b ;header=X-Probe:c;header=User-Agent:own;expect=200,204-299", `POST / ["a b" "c"] ["own"] ["*/*"]`, ""},
			{"http:/;header=X-Probe:deep;expect=200", `GET / ["deep"] ["ringway-health"] ["*/*"]`, "the check expects 200"},
			{"http:/;header=X-Probe:deep;expect=205-599", `GET / ["deep"] ["ringway-health"] ["*/*"]`, "answered 204"},
		} {
			check, err := ParseCheck(c.text)
			if err != nil {
				t.Fatal(err)
			}
			check.Address, check.Host, check.HTTP2 = server.Listener.Addr().String(), "", http2
			f := normalized(t, check).probe(t.Context())
			if asked != c.asked {
				t.Errorf("%s, HTTP/2 %v: asked %s, want %s", c.text, http2, asked, c.asked)
			}
			if text := fmt.Sprint(f); (f == nil) != (c.fails == "") || !strings.Contains(text, c.fails) {
				t.Errorf("%s, HTTP/2 %v: %v, want %q", c.text, http2, f, c.fails)
			}
		}
	}
}

func TestARequestOfACheckThatMakesNoSenseIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"tcp;method=GET":                               "only an http check",
		"grpc:a;expect=200":                            "only an http check",
		"tcp;header=X:y":                               "only an http check",
		"http:/;method=DELETE":                         "want GET, HEAD, OPTIONS, POST",
		"http:/;method=":                               "method is empty",
		"http:/;header=X":                              "want NAME:VALUE",
		"http:/;header=:y":                             "want NAME:VALUE",
		"http:/;header=a b:y":                          "want NAME:VALUE",
		"http:/;header=X:a\x00":                        "a byte that no header may have",
		"http:/;header=X:a\nY:b":                       "want NAME:VALUE",
		"http:/;header=Host:a":                         "write host=NAME",
		"http:/;header=content-length:5":               "the check cannot set it",
		"http:/;header=Ringway-Service:a":              "the check cannot set it",
		"http:/;header=X:" + strings.Repeat("y", 5000): "at most 16",
		"http:/" + strings.Repeat(";header=X:y", 17):   "at most 16",
		"http:/;expect=":                               "expect is empty",
		"http:/;expect=ok":                             "is not a final status",
		"http:/;expect=100":                            "is not a final status",
		"http:/;expect=600":                            "is not a final status",
		"http:/;expect=299-200":                        "ends before it begins",
		"http:/;expect=200,":                           "is not a final status",
		"http:/;expect=200-":                           "is not a final status",
	} {
		if _, err := ParseCheck(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}
