package requestlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// fileMode lets the group read the records, as the logs of system services.
const fileMode = 0o640

// CheckFile returns the error that opening the file would return, as far as this is known
// without creating the file.
func CheckFile(path string) error {
	if path == "" || path == Stdout {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		dir, err := os.Stat(filepath.Dir(path))
		if err == nil && !dir.IsDir() {
			err = errors.New("is no directory")
		}
		if err != nil {
			return fmt.Errorf("request log %s: its directory: %w: create it", path, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("request log %s: %w", path, err)
	case !info.Mode().IsRegular() && info.Mode()&fs.ModeCharDevice == 0:
		// A pipe would block the start until it is read.
		return fmt.Errorf("request log %s: neither a file nor a terminal: give a path, or %s for standard output", path, Stdout)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	return f.Close()
}

// openFile opens the file, creating it if needed.
func openFile(path string) (io.WriteCloser, error) {
	if path == Stdout {
		return keptOpen{os.Stdout}, nil
	}
	if err := CheckFile(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, fileMode)
	if err != nil {
		return nil, fmt.Errorf("request log: %w", err)
	}
	return f, nil
}

// keptOpen is standard output, which belongs to the process.
type keptOpen struct{ io.Writer }

func (keptOpen) Close() error { return nil }

// output writes lines to the current file. Only the writer uses it.
type output struct {
	log  *Log
	file io.WriteCloser
	// rest is the end of a line of which the file has taken the beginning.
	rest []byte
	// failing is set while writes fail; dropped counts the lines lost meanwhile.
	failing bool
	dropped int
}

// write writes n whole lines with one write, if the file takes them. If the file takes only
// a part, the rest of the line that was cut comes first in the next write, and the other
// lines are lost: the file may be full for hours.
func (o *output) write(lines []byte, n int) {
	if n == 0 {
		return
	}
	if err := o.finishLine(); err != nil {
		o.lost(n, err)
		return
	}
	taken, err := o.file.Write(lines)
	if err == nil {
		o.log.written.Add(float64(n))
		o.works()
		return
	}
	whole := bytes.Count(lines[:taken], []byte{'\n'})
	o.log.written.Add(float64(whole))
	lost := n - whole
	if taken > 0 && lines[taken-1] != '\n' {
		end := bytes.IndexByte(lines[taken:], '\n')
		o.rest = append(o.rest[:0], lines[taken:taken+end+1]...)
		lost-- // finishLine or reopen counts it
	}
	o.lost(lost, err)
}

// finishLine writes the rest of a line that was cut, so that the file ends with a whole
// line.
func (o *output) finishLine() error {
	if len(o.rest) == 0 {
		return nil
	}
	n, err := o.file.Write(o.rest)
	o.rest = o.rest[:copy(o.rest, o.rest[n:])]
	if err == nil {
		o.log.written.Inc()
	}
	return err
}

// lost counts lines that were not written, and logs the first failure.
func (o *output) lost(n int, err error) {
	if !o.failing {
		o.log.cfg.Logger.Error("cannot write the request log: records are dropped until it can be written again; requests are not affected", "file", o.log.cfg.File, "err", err)
	}
	o.failing = true
	o.dropped += n
	o.log.dropped[dropWrite].Add(float64(n))
}

// works logs that writes succeed again.
func (o *output) works() {
	if o.failing {
		o.log.cfg.Logger.Info("the request log is written again", "file", o.log.cfg.File, "dropped", o.dropped)
	}
	o.failing, o.dropped = false, 0
}

// reopen replaces the file by the one that now has its name.
func (o *output) reopen() error {
	next, err := o.log.open(o.log.cfg.File)
	if err != nil {
		return err
	}
	o.close()
	o.file = next
	return nil
}

// close closes the file. A line that it took only in part is lost: another file must not
// begin with its rest.
func (o *output) close() {
	if err := o.finishLine(); err != nil {
		o.rest = o.rest[:0]
		o.lost(1, err)
	}
	if err := o.file.Close(); err != nil {
		o.log.cfg.Logger.Warn("cannot close the request log", "file", o.log.cfg.File, "err", err)
	}
}
