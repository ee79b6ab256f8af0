//! The macro that defines a record from one list of its fields in wire order.
//!
//! It makes the struct, its `decode` and its `encode`. It knows no record.

/// Defines a record: the struct, its `decode` and `encode`, all from one list of fields in wire order.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident<$lt:lifetime> {
        $($(#[$fmeta:meta])* pub $field:ident: $ty:ty,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<$lt> {
            $($(#[$fmeta])* pub $field: $ty,)+
        }

        impl<$lt> $name<$lt> {
            /// Decodes one record from the front of `reader`.
            ///
            /// # Errors
            /// [`DecodeError`](crate::DecodeError) if the bytes are not such a record.
            pub fn decode(reader: &mut $crate::Reader<$lt>) -> Result<Self, $crate::DecodeError> {
                <Self as $crate::Wire<$lt>>::decode(reader)
            }

            /// Appends the record.
            pub fn encode(&self, writer: &mut $crate::Writer<'_>) {
                $($crate::Wire::encode(&self.$field, writer);)+
            }
        }

        impl<$lt> $crate::Wire<$lt> for $name<$lt> {
            const SIZE_MIN: usize = 0 $(+ <$ty as $crate::Wire<$lt>>::SIZE_MIN)+;

            fn decode(reader: &mut $crate::Reader<$lt>) -> Result<Self, $crate::DecodeError> {
                Ok(Self { $($field: $crate::Wire::decode(reader)?,)+ })
            }

            fn encode(&self, writer: &mut $crate::Writer<'_>) {
                $name::encode(self, writer);
            }
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$fmeta:meta])* pub $field:ident: $ty:ty,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)+
        }

        impl $name {
            /// Decodes one record from the front of `reader`.
            ///
            /// # Errors
            /// [`DecodeError`](crate::DecodeError) if the bytes are not such a record.
            pub fn decode(reader: &mut $crate::Reader<'_>) -> Result<Self, $crate::DecodeError> {
                <Self as $crate::Wire<'_>>::decode(reader)
            }

            /// Appends the record.
            pub fn encode(&self, writer: &mut $crate::Writer<'_>) {
                let mut bytes = [0; <$name as $crate::Wire<'static>>::SIZE_MIN];
                $crate::jute::Fixed::put(self, &mut bytes);
                writer.bytes(&bytes);
            }
        }

        impl $crate::jute::Fixed for $name {
            #[inline]
            fn put<'b>(&self, room: &'b mut [u8]) -> &'b mut [u8] {
                $(let room = $crate::jute::Fixed::put(&self.$field, room);)+
                room
            }
        }

        impl<'r> $crate::Wire<'r> for $name {
            const SIZE_MIN: usize = 0 $(+ <$ty as $crate::Wire<'r>>::SIZE_MIN)+;

            fn decode(reader: &mut $crate::Reader<'r>) -> Result<Self, $crate::DecodeError> {
                Ok(Self { $($field: $crate::Wire::decode(reader)?,)+ })
            }

            fn encode(&self, writer: &mut $crate::Writer<'_>) {
                $name::encode(self, writer);
            }
        }
    };
}
