package gossip

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"pgregory.net/rapid"
)

// What memberlist itself sends passes as it is, whatever the form of its values.
func TestValuesOfAStreamPassUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := map[string]any{
			"number": rapid.Int64().Draw(t, "number"), "unsigned": rapid.Uint64().Draw(t, "unsigned"),
			"text": rapid.StringN(0, -1, 40_000).Draw(t, "text"), "bytes": rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes"),
			"list": rapid.SliceOfN(rapid.Float64(), 0, 300).Draw(t, "list"), "none": nil, "yes": rapid.Bool().Draw(t, "yes"),
			"map": rapid.MapOfN(rapid.Uint16(), rapid.Float32(), 0, 40).Draw(t, "map"),
		}
		var message, got bytes.Buffer
		if err := codec.NewEncoder(&message, &codec.MsgpackHandle{WriteExt: rapid.Bool().Draw(t, "new forms")}).Encode(value); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(io.MultiReader(bytes.NewReader(message.Bytes()), strings.NewReader("next")))
		if err := CopyValue(&got, in, 0); err != nil || !bytes.Equal(got.Bytes(), message.Bytes()) {
			t.Fatalf("%v: %d bytes of %d", err, got.Len(), message.Len())
		}
		if next, _ := io.ReadAll(in); string(next) != "next" {
			t.Fatalf("%q is left", next)
		}
	})
}
