-- The application's role, which owns the tables, and the role that captures changes. To create a publication, a role
-- must own its tables, so the second one is a member of the first.

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'shop') THEN
        CREATE ROLE shop LOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'shop_capture') THEN
        CREATE ROLE shop_capture LOGIN REPLICATION IN ROLE shop;
    END IF;
END $$;
