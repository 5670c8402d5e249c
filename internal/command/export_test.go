package command

// SchemaURL is where the schema of a version is published.
var SchemaURL = schemaURL
