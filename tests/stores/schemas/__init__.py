"""Small databases of every version of every embedded store, as SQL text.

Each was written by the code of its version and is never changed. After adding a migration, run
`python -m stores.schemas.make` (with src and tests on the path): it writes the file of the new
version. The files up to box-5 hold rows as they were written before processors were separated.
"""
