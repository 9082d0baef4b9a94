/*
 * Text in XML, SVG and HTML files, between tags and in attributes. For tools and writers of files; no state.
 */
#ifndef DF_BASE_XML_TEXT_H
#define DF_BASE_XML_TEXT_H

#include <stddef.h>
#include <stdio.h>

/*
 * Writes s with its entities, at most max characters (0: all) and then "..."; what no XML file may hold becomes '?':
 * control characters, and bytes that are not UTF-8.
 */
void df_xml_text(FILE *out, const char *s, size_t max);

#endif
