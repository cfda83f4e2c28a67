# The header of a plug-in: without what it declares of the program, a paragraph of prototypes or of variables each.
BEGIN {
    RS = ""
    ORS = "\n\n"
}

{
    code = $0
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", code)
    if (code !~ /^[ \n]*[a-z_][^{}#=]*;[ \n]*$/ || $0 ~ /^ / || code ~ /^[ \n]*struct [a-z_]+;/) {
        print
    }
}
