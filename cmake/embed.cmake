# SPDX-License-Identifier: Apache-2.0
#
# cmake -DFILE=PATH -DNAME=SYMBOL -DHEADER=PATH -DOUT=PATH -P embed.cmake: writes the C source OUT with the bytes of FILE as
# `const unsigned char SYMBOL[]` and their number as `const size_t SYMBOL_bytes`, as HEADER declares them.

file(READ ${FILE} bytes HEX)
string(LENGTH "${bytes}" count)
math(EXPR count "${count} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "#include \"${HEADER}\"\n\nconst unsigned char ${NAME}[] = {\n${bytes}\n};\nconst size_t ${NAME}_bytes = ${count};\n")
