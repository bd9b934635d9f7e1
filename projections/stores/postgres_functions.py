"""The SQL functions with which the PostgreSQL store combines rows and shows columns; Python's are in `monoids`."""

FUNCTIONS = """
-- two tallies, {{"value": count}}, added up; what is held zero times is dropped
CREATE OR REPLACE FUNCTION {schema}.tally_add(ours text, theirs text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(jsonb_object_agg(key, held), '{{}}')::text
    FROM (
        SELECT key, sum(value::bigint) AS held
        FROM (
            SELECT key, value FROM jsonb_each_text(coalesce(ours, '{{}}')::jsonb)
            UNION ALL
            SELECT key, value FROM jsonb_each_text(coalesce(theirs, '{{}}')::jsonb)
        ) AS entries
        GROUP BY key
        HAVING sum(value::bigint) <> 0
    ) AS sums
$$;

-- the lowest and the highest value that a tally holds
CREATE OR REPLACE FUNCTION {schema}.tally_lowest(held text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT min(key::bigint) FROM jsonb_each_text(held::jsonb) WHERE value::bigint > 0
$$;
CREATE OR REPLACE FUNCTION {schema}.tally_highest(held text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT max(key::bigint) FROM jsonb_each_text(held::jsonb) WHERE value::bigint > 0
$$;

-- how many different values a tally holds
CREATE OR REPLACE FUNCTION {schema}.tally_size(held text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT count(*) FROM jsonb_each_text(coalesce(held, '{{}}')::jsonb) WHERE value::bigint > 0
$$;

-- two sketches, a character for each register: the higher of each; a patch sets few registers, a row may set all
CREATE OR REPLACE FUNCTION {schema}.sketch_merge(ours text, theirs text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    merged text := ours;
    register integer := 1;
BEGIN
    IF length(replace(theirs, '0', '')) > 100 THEN
        RETURN (
            SELECT string_agg(chr(greatest(ascii(our), ascii(their))), '' ORDER BY number)
            FROM unnest(string_to_array(ours, NULL), string_to_array(theirs, NULL))
                WITH ORDINALITY AS registers(our, their, number)
        );
    END IF;
    LOOP
        register := length(theirs) - length(ltrim(substr(theirs, register), '0')) + 1;
        EXIT WHEN register > length(theirs);
        IF ascii(substr(theirs, register, 1)) > ascii(substr(merged, register, 1)) THEN
            merged := overlay(merged PLACING substr(theirs, register, 1) FROM register FOR 1);
        END IF;
        register := register + 1;
    END LOOP;
    RETURN merged;
END
$$;

-- how many different values a sketch has seen (HyperLogLog; the characters count from '0')
CREATE OR REPLACE FUNCTION {schema}.sketch_estimate(sketch text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    registers float8 := length(sketch);
    unused float8;
    found float8;
    weights float8 := 0;
    higher text := sketch;
    lower text;
    rank integer := 0;
    raw float8;
BEGIN
    IF sketch IS NULL THEN
        RETURN 0;
    END IF;
    WHILE higher <> '' LOOP
        lower := higher;
        higher := replace(higher, chr(48 + rank), '');
        found := length(lower) - length(higher);
        weights := weights + found * power(2::float8, -rank);
        IF rank = 0 THEN
            unused := found;
        END IF;
        rank := rank + 1;
    END LOOP;
    raw := 0.7213::float8 / (1 + 1.079::float8 / registers) * registers * registers / weights;
    IF raw <= 2.5 * registers AND unused > 0 THEN
        raw := registers * ln(registers / unused);
    END IF;
    RETURN floor(raw + 0.5);
END
$$;

-- the entries of a list as plain values, in their order or backwards
CREATE OR REPLACE FUNCTION {schema}.entry_values(held text, backwards boolean) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(jsonb_agg(entry -> '_value' ORDER BY CASE WHEN backwards THEN -number ELSE number END), '[]')
    FROM jsonb_array_elements(coalesce(held, '[]')::jsonb) WITH ORDINALITY AS entries(entry, number)
$$;

-- the entries of a list as objects with the names of `template`, those marked as deleted left out
CREATE OR REPLACE FUNCTION {schema}.entry_objects(held text, template jsonb, backwards boolean) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(jsonb_agg(shown ORDER BY CASE WHEN backwards THEN -number ELSE number END), '[]')
    FROM (
        SELECT number, template || coalesce(jsonb_object_agg(key, value) FILTER (WHERE template ? key), '{{}}') AS shown
        FROM jsonb_array_elements(coalesce(held, '[]')::jsonb) WITH ORDINALITY AS entries(entry, number),
            jsonb_each(entry)
        WHERE NOT coalesce((entry ->> '_deleted')::boolean, false)
        GROUP BY number
    ) AS objects
$$;
"""
