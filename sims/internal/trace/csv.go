package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The columns of a CSV file. Others are ignored.
var (
	serviceColumns = map[string]time.Duration{"service_ms": time.Millisecond, "service_s": time.Second}
	arrivalColumns = map[string]time.Duration{"arrival_ms": time.Millisecond, "arrival_s": time.Second}
)

// readCSV reads rows under a header. An arrival is the time since any moment that is the same
// for all rows.
func (r *rows) readCSV(in io.Reader) error {
	file := csv.NewReader(&boundedLines{r: in})
	file.ReuseRecord, file.TrimLeadingSpace, file.Comment = true, true, '#'
	header, err := file.Read()
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty: it needs a header such as service_ms,arrival_s, or the lines of a request log")
	}
	if err != nil {
		return err
	}
	service, serviceUnit := column(header, serviceColumns)
	arrival, arrivalUnit := column(header, arrivalColumns)
	if service < 0 {
		return fmt.Errorf("line 1: the header has no column service_ms or service_s: it begins with %.80q", strings.Join(header, ","))
	}
	for {
		fields, err := file.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err // names the line
		}
		line, _ := file.FieldPos(0)
		took, err := number(fields[service], serviceUnit)
		if err != nil {
			return fmt.Errorf("line %d, service time: %w", line, err)
		}
		var came *time.Duration
		if arrival >= 0 {
			at, err := number(fields[arrival], arrivalUnit)
			if err != nil {
				return fmt.Errorf("line %d, arrival: %w", line, err)
			}
			came = &at
		}
		if err := r.add(took, came); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

func column(header []string, names map[string]time.Duration) (int, time.Duration) {
	at := slices.IndexFunc(header, func(name string) bool { return names[strings.ToLower(strings.TrimSpace(name))] != 0 })
	if at < 0 {
		return -1, 0
	}
	return at, names[strings.ToLower(strings.TrimSpace(header[at]))]
}

func number(text string, unit time.Duration) (time.Duration, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	d, ok := duration(v, unit)
	if err != nil || !ok || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%.40q is no number of %v: write it as 12.5", text, unit)
	}
	return d, nil
}

// boundedLines ends with an error at a line that is too long, because encoding/csv would keep
// it whole in memory.
type boundedLines struct {
	r    io.Reader
	line int // lines before this one
	n    int // bytes of this line
}

func (b *boundedLines) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	for _, c := range p[:n] {
		b.n++
		if c == '\n' {
			b.line, b.n = b.line+1, 0
		}
		if b.n > maxLine {
			return 0, tooLong(b.line + 1)
		}
	}
	return n, err
}

func tooLong(line int) error {
	return fmt.Errorf("line %d is longer than %d bytes: it is neither CSV with a header nor a request log", line, maxLine)
}
