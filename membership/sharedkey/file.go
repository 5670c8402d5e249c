package sharedkey

import "errors"

// fileState is what Run's goroutine knows of Config.File.
type fileState struct {
	inUse   Key
	problem string // what was last reported
}

// checkFile takes the key of the file when it is new. With Config.Value it does
// nothing: the value wins. A file that is gone or bad leaves everything as it is.
func (k *Keeper) checkFile() {
	if k.cfg.File == "" || len(k.cfg.Value) > 0 {
		return
	}
	material, warning, err := readKeyFile(k.cfg.File)
	if errors.Is(err, errNoFile) {
		k.file.problem = ""
		return
	}
	if err != nil {
		if text := err.Error(); text != k.file.problem {
			k.file.problem = text
			k.cfg.Logger.Warn("shared key file not taken, everything stays as it is", "file", k.cfg.File, "error", err)
		}
		return
	}
	k.file.problem = ""
	key := newKey(material, "", 0)
	if key.Equal(k.file.inUse) {
		return
	}
	k.file.inUse = key
	if warning != "" {
		k.cfg.Logger.Warn("shared key file " + warning)
	}
	now := k.now()
	k.publish(k.ring.Load().expire(now).use(key, SourceFile, now, now.Add(k.cfg.Retire)))
}
