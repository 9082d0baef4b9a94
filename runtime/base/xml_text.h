/* Writes text into XML, SVG and HTML files, between tags and in attributes. For tools; no state. */
#ifndef DF_BASE_XML_TEXT_H
#define DF_BASE_XML_TEXT_H

#include <stddef.h>
#include <stdio.h>

/*
 * Writes s with its entities, at most max characters (0: all), followed by "..." if it was cut.
 * Writes '?' for control characters and for bytes that are not UTF-8, which no XML file may
 * contain.
 */
void df_xml_text(FILE *out, const char *s, size_t max);

#endif
